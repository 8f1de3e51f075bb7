"""shellcheck's findings in shell scripts, and ruff's in Python ones (ruff.toml: its rules)."""
import functools
import pathlib
import re
import shutil
import subprocess
import tempfile

RUFF_FILE = "ruff.toml"


def is_shell(path, text):
    return path.endswith((".sh", ".sbatch")) or re.match(r"#!.*\b(ba)?sh\b", text) is not None


def is_python(path, text):
    return path.endswith(".py") or re.match(r"#!.*\bpython3\b", text) is not None


class Checker:
    """`program` with `flags` and paths prints findings as PATH:LINE:COLUMN: what."""

    def __init__(self, program, flags, takes, place=None):
        self.program, self.flags, self.takes, self.place = program, flags, takes, place

    @functools.cache  # noqa: B019  # two checkers live as long as the program
    def found(self):
        """(path of the program, None), or (None, why it cannot be asked)."""
        path = shutil.which(self.program) or (self.place and shutil.which(str(self.place)))
        if path is None:
            return None, f"{self.program} is not installed (tools/setup --test does it)"
        return path, None

    def violations(self, tree):
        """(path, line, words). Requires: the program was found."""
        paths = [path for path, text in tree.texts.items() if self.takes(path, text)]
        with tempfile.TemporaryDirectory() as folder:
            for path in paths + [path for path in (RUFF_FILE,) if path in tree.texts]:
                file = pathlib.Path(folder, path)
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_text(tree.texts[path])
            if not paths:
                return
            said = subprocess.run([self.found()[0], *self.flags, *paths], cwd=folder, text=True,
                                  capture_output=True, check=False)
        if said.returncode not in (0, 1):
            raise RuntimeError(f"{self.program} failed: {said.stderr or said.stdout}")
        for path, line, words in re.findall(r"^([^:\n]+):(\d+):\d+: (.*)$", said.stdout, re.M):
            yield path, int(line), words


DEPS = pathlib.Path(__file__).resolve().parents[2] / ".deps"
CHECKERS = {
    "shell": Checker("shellcheck", ["--severity=warning", "--format=gcc", "--external-sources"],
                     is_shell),
    "python": Checker("ruff", ["check", "--no-cache", "--output-format=concise"], is_python,
                      DEPS / "python/bin/ruff"),
}
