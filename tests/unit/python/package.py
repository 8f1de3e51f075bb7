"""What the tests of `import lockstep_trainer` share: NAME_test.py LOCKSTEP."""
import json
import os
import pathlib
import shutil
import sys
import tempfile
import unittest

LOCKSTEP = sys.argv.pop(1)
SOURCE = pathlib.Path(__file__).resolve().parents[3]
PACKAGE = SOURCE / "packaging/wheel/lockstep_trainer"
GOLDEN = SOURCE / "tests/golden"
sys.path[:0] = [str(PACKAGE.parent), str(GOLDEN)]
NAME = "step_00000012.g1-901de2"  # of each golden checkpoint


class FolderTest(unittest.TestCase):
    """With a folder of its own, and a PATH in which `lockstep` is what use() put there."""

    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="lockstep_python_"))
        self.addCleanup(shutil.rmtree, self.folder)
        self.programs = self.folder / "programs"
        self.programs.mkdir()
        path = os.environ["PATH"]
        self.addCleanup(os.environ.__setitem__, "PATH", path)
        os.environ["PATH"] = f"{self.programs}:/usr/bin:/bin"

    def use(self, script=None):
        """A shell script as `lockstep`, or the real one."""
        program = self.programs / "lockstep"
        if script is None:
            program.symlink_to(LOCKSTEP)
        else:
            program.write_text(f"#!/bin/sh\n{script}\n")
            program.chmod(0o755)

    def fails(self, kind, body, *words):
        """The error's text has all words."""
        with self.assertRaises(kind) as caught:
            body()
        for word in words:
            self.assertIn(word, str(caught.exception))
        return caught.exception


def golden_copy(to, codec="zstd", which="checkpoint_v1"):
    """A golden checkpoint that may be damaged; its folder."""
    return pathlib.Path(shutil.copytree(GOLDEN / which / codec / NAME, to))


def change_manifest(folder, change):
    """`change` alters the dict. The hash is not that of the new text; nothing here reads it."""
    path = folder / "manifest.json"
    manifest = json.loads(path.read_bytes())
    digest = manifest.pop("self_xxh3")
    change(manifest)
    path.write_text(json.dumps(manifest)[:-1] + f',\n"self_xxh3": "{digest}"\n}}\n')


def main():
    unittest.main(verbosity=2)
