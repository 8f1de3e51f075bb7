"""A folder of programs in place of Slurm's and of ours, and an environment that finds them."""
import os
import pathlib

JOB_ID = "7"


class Stub:
    def __init__(self, folder, commands="."):
        """`commands`: where in `folder` the programs of PATH lie."""
        self.folder = pathlib.Path(folder)
        self.environment = {name: value for name, value in os.environ.items()
                            if not name.startswith(("SLURM", "SBATCH", "LOCKSTEP", "LD_"))}
        self.environment |= {"PATH": f"{self.folder / commands}:{os.environ['PATH']}",
                             "HERE": str(folder), "SLURM_JOB_ID": JOB_ID,
                             "SLURM_JOB_NUM_NODES": "2"}

    def put(self, path, text):
        """A program at `path`, below the folder."""
        file = self.folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        file.chmod(0o755)
        return file
