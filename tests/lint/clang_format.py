"""Which C++ files clang-format would change. Majors differ in what they do: one is asked."""
import functools
import os
import pathlib
import re
import shutil
import subprocess
import tempfile

MAJOR = 14
STYLE = ".clang-format"


@functools.cache
def program():
    """(clang-format of this major, None), or (None, why it cannot be asked)."""
    path = shutil.which(f"clang-format-{MAJOR}") or shutil.which("clang-format")
    if path is None:
        return None, "clang-format is not installed (tools/setup --test does it)"
    said = subprocess.run([path, "--version"], check=True, capture_output=True, text=True).stdout
    version = re.search(r"version (\d+)", said)
    if version is None or int(version.group(1)) != MAJOR:
        return None, f"the layout is that of clang-format {MAJOR}, and this is {said.strip()}"
    return path, None


def violations(tree):
    """(path, line) of the first change in each C++ file. Requires: program() is there."""
    with tempfile.TemporaryDirectory() as folder:
        for path in [STYLE] + [path for path, _ in tree.cpp()]:
            file = pathlib.Path(folder, path)
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(tree.texts[path])
        paths = [path for path, _ in tree.cpp()]
        count = os.cpu_count() or 1
        running = [subprocess.Popen([program()[0], "--dry-run", *paths[part::count]], cwd=folder,
                                    stderr=subprocess.PIPE, text=True)
                   for part in range(min(count, len(paths)))]
        said = "".join(each.communicate()[1] for each in running)
    if any(each.returncode != 0 for each in running):
        raise RuntimeError(f"clang-format failed: {said}")
    found = {}
    for path, line in re.findall(r"^(\S+):(\d+):\d+: warning: code should be clang-formatted",
                                 said, re.MULTILINE):
        found.setdefault(path, int(line))
    return found.items()
