"""A small file system of a test's own, which can be filled."""
import os
import subprocess

from lockstep_run import check

DISK_BYTES = 8 << 20
AS_ROOT = [] if os.geteuid() == 0 else ["sudo", "-n"]


class Disk:
    """A small file system at the checkpoint folder, and a file that takes its room."""

    def __init__(self, test, name):
        self.folder = test.folder / name
        self.root = self.folder / "checkpoints"
        self.root.mkdir(parents=True)
        done = subprocess.run([*AS_ROOT, "mount", "-t", "tmpfs", "-o",
                               f"size={DISK_BYTES},uid={os.geteuid()}", "lockstep_test",
                               str(self.root)], capture_output=True, text=True, check=False)
        check(done.returncode == 0, "cannot mount a tmpfs, which this test needs:", done.stderr)
        test.mounts.append(str(self.root))
        self.ballast = self.root / "ballast"

    def free_bytes(self):
        disk = os.statvfs(self.root)
        return disk.f_bavail * disk.f_frsize

    def leave(self, free_bytes):
        """Takes all room but `free_bytes`."""
        self.ballast.write_bytes(bytes(self.free_bytes() - free_bytes))

    def attempts(self):
        return sorted(path.name for path in self.root.glob("step_*"))
