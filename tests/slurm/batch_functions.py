"""sbatch_files/common.sh and submit with programs in Slurm's place: which status a job gets when
its tasks end with several, when it is launched again, what agents are told of --no-kill, which CPUs
and containers steps get, and which program runs. Needs no Slurm."""
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "multirank"))
from lockstep_run import SOURCE_DIR, check
from stub import Stub

FILES = SOURCE_DIR / "sbatch_files"
# Each launch takes the next line of `ends`: srun's status, and what the run says when it is asked
# (nothing at all: the step is refused).
SRUN = """#!/bin/bash
words="$*"
echo "srun ${words//$'\n'/ }" >>"$HERE/asked"
if [[ " $* " == *" --end-of "* ]]; then
  cat "$HERE/said" 2>/dev/null
  exit
fi
read -r status said <"$HERE/ends"
sed -i 1d "$HERE/ends"
rm -f "$HERE/said"
if [[ -n "$said" ]]; then echo "$said" >"$HERE/said"; fi
exit "$status"
"""
SLEEP = """#!/bin/bash
echo "sleep $*" >>"$HERE/asked"
"""
PROGRAM = """#!/bin/bash
echo "$0 $*" >>"$HERE/asked"
exit "${HAS_NO_CUDA:-0}"
"""
JOB = f"""#!/bin/bash
HEADER
source {FILES}/common.sh
echo "no_kill ${{LOCKSTEP_SLURM_NO_KILL-unknown}}"
launch a.toml
"""


class Batch(Stub):
    def __init__(self, folder):
        super().__init__(folder)
        programs = {"srun": SRUN, "sleep": SLEEP, "squeue": "#!/bin/bash\necho 2\n",
                    "sbatch": '#!/bin/bash\necho "sbatch $*"\n', "lockstep": PROGRAM}
        for name, text in programs.items():
            self.put(name, text)
        self.environment |= {"LOCKSTEP": "lockstep", "SLURMD_NODENAME": "node1"}

    def step(self, **environment):
        """The words of the step that a job with this environment runs, and what it says."""
        (self.folder / "ends").write_text("0\n")
        (self.folder / "asked").write_text("")
        (self.folder / "job.sh").write_text(JOB.replace("HEADER", ""))
        done = self.bash("job.sh", **environment)
        return (self.folder / "asked").read_text().split(" bash -c ")[0].split(), done.stderr

    def bash(self, path, *words, **environment):
        return subprocess.run(["bash", str(path), *words], cwd=self.folder, check=False, text=True,
                              capture_output=True, env=self.environment | environment)

    def ends(self, *ends):
        """The status of a job whose launches end so; how many there were; what srun and sleep were
        asked. What the job said is in `told`."""
        (self.folder / "ends").write_text("".join(f"{end}\n" for end in ends))
        (self.folder / "asked").write_text("")
        (self.folder / "job.sh").write_text(JOB.replace("HEADER", ""))
        done = self.bash("job.sh")
        self.told = done.stderr.splitlines()
        asked = (self.folder / "asked").read_text().splitlines()
        return done.returncode, sum(" launch " in line for line in asked), asked

    def believes(self, header, **environment):
        (self.folder / "ends").write_text("0\n")
        (self.folder / "job.sh").write_text(JOB.replace("HEADER", header))
        return self.bash("job.sh", **environment).stdout.split()[1]


def statuses(stub):
    for ends, expected in (
            (["0"], (0, 1)),
            (["70 0"], (0, 1)),          # a node was dismissed, the others finished
            (["75 0"], (0, 1)),          # one was cut off
            (["75 64"], (64, 1)),
            (["75 75"], (75, 1)),
            (["93 none"], (93, 1)),      # refused before it began
            (["64 none"], (64, 1)),
            (["70 none", "0"], (0, 2)),  # dismissed; the others were killed
            (["75 none", "1 0"], (0, 2)),
            (["70 none"] * 4, (70, 4)),
            (["1 none", "75 75"], (75, 2)),
            (["1 76", "0"], (0, 2)),
            (["75"], (75, 1)),           # nobody could be asked: srun's word
            (["70"], (70, 1))):
        status, launches, asked = stub.ends(*ends)
        check((status, launches) == expected, ends, (status, launches), asked)
    asked = stub.ends("70 none", "75 0")[2]
    check("--nodelist=node1 --overlap" in asked[1] and "--end-of 7.0.1 a.toml" in asked[1], asked)
    check("--end-of 7.0.2 a.toml" in asked[3] and "--overlap" not in asked[2], asked)


def not_started(stub):
    """srun failed before an agent was there: nobody can be asked, or nobody has spoken."""
    for ends, expected, pauses in (
            (["233", "0"], (0, 2), [15]),
            (["233 none", "0"], (0, 2), [15]),
            (["160", "233", "1 none", "0"], (0, 4), [15, 60]),
            (["1 none", "233", "75 75"], (75, 3), [60]),
            (["233 75"], (75, 1), []),         # the run has spoken nevertheless
            (["233"] * 4, (233, 4), [15, 60, 240]),
            (["137 none", "0"], (0, 2), [])):  # a task that was killed
        status, launches, asked = stub.ends(*ends)
        slept = [int(line.split()[1]) for line in asked if line.startswith("sleep ")]
        check((status, launches, slept) == (*expected, pauses), ends, status, asked, stub.told)
    stub.ends("233", "1 none", "0")
    check(stub.told == ["launch 1 of 4: srun could not start the agents (status 233)",
                        "the next launch starts in 15 s",
                        "launch 2 of 4 ended with status 1"], stub.told)


def no_kill(stub):
    for header, expected in (
            ("", "unknown"), ("#SBATCH --no-kill", "1"), ("#SBATCH -N2 -k --time=1", "1"),
            ("#SBATCH --no-kill=off", "0"), ("#SBATCH --no-kill\n#SBATCH --no-kill=no", "0"),
            ("#SBATCH --no-kill=off --no-kill # again", "1"),
            ('#SBATCH --comment="not \\" --no-kill here"', "unknown"),
            ("#SBATCH --comment='not --no-kill here' # --no-kill", "unknown"),
            ("\n  # a word\n#SBATCH --no-kill", "1"), (":\n#SBATCH --no-kill", "unknown")):
        check(stub.believes(header) == expected, header, stub.believes(header))
    check(stub.believes("#SBATCH --no-kill", SBATCH_NO_KILL="off") == "0", "sbatch took that")


def submitted(stub):
    for name, words, environment, expected in (
            ("multi_node", [], {}, "1"), ("multi_node", ["--no-kill=off"], {}, "0"),
            ("multi_node", ["--no-kill=off", "-k"], {}, "1"),
            ("multi_node", [], {"SBATCH_NO_KILL": "off"}, "0"),
            ("multi_node", ["--no-kill"], {"SBATCH_NO_KILL": "off"}, "1"),
            ("single_gpu", [], {}, "unknown"), ("single_gpu", ["--no-kil"], {}, "1")):
        done = stub.bash(FILES / "submit", name, *words, **environment)
        check(done.returncode == 0 and done.stdout.startswith(" ".join(["sbatch", *words])), done)
        job = f"lockstep-{name.replace('_', '-')}"
        header = [line for line in
                  (stub.folder / "logs" / job / f"{name}.sbatch").read_text().splitlines()
                  if line.startswith("#SBATCH")]
        check(len(header) > 10 and header.count("#SBATCH --no-kill") <= 1, header)
        check(stub.believes("\n".join(header)) == expected, name, words, environment, header)


def cpus(stub):
    words, told = stub.step(SLURM_CPUS_PER_TASK="16", SLURM_CPUS_ON_NODE="64")
    check("--cpus-per-task=16" in words and not told, words, told)
    words, told = stub.step(SLURM_CPUS_ON_NODE="64", SLURM_GPUS_ON_NODE="4")
    check("--cpu-bind=none" in words and not told, words, told)
    check(not any(word.startswith("--cpus-per-task") for word in words), words)
    for environment in ({"SLURM_CPUS_ON_NODE": "1", "SLURM_GPUS_ON_NODE": "4"},
                        {"SLURM_CPUS_PER_TASK": "1", "NPROC_PER_NODE": "4,2"}):
        told = stub.step(**environment)[1]
        check("1 CPUs for 4 workers; request more" in told, environment, told)


def containers(stub):
    check("--container" not in " ".join(stub.step()[0]), stub.step())
    words = stub.step(LOCKSTEP_CONTAINER_IMAGE="site/lockstep:1")[0]
    check({"--container-image=site/lockstep:1", f"--container-workdir={stub.folder}",
           f"--container-mounts={stub.folder}:{stub.folder}"} <= set(words), words)
    words = stub.step(LOCKSTEP_CONTAINER_IMAGE="i", LOCKSTEP_CONTAINER_MOUNTS="/data:/data")[0]
    check("--container-mounts=/data:/data" in words, words)
    check("--environment=lockstep" in stub.step(LOCKSTEP_ENVIRONMENT="lockstep")[0], words)


def programs(stub):
    """Which program settings.sh finds: of the copy of sbatch_files in a tree, or in a wheel."""
    def found(files, **environment):
        shutil.copytree(FILES, stub.folder / files, dirs_exist_ok=True)
        (stub.folder / "ask.sh").write_text(f'source {stub.folder / files}/settings.sh\n'
                                            'echo "$LOCKSTEP"\n')
        return stub.bash("ask.sh", **environment).stdout.strip()

    without = {"PATH": os.defpath}
    of_path = str(stub.folder / "lockstep")
    check(found("tree/sbatch_files", LOCKSTEP="/its/own") == "/its/own", "LOCKSTEP")
    check(found("tree/sbatch_files", LOCKSTEP="") == of_path, "PATH")
    check(found("tree/sbatch_files", LOCKSTEP="", **without) == "lockstep", "nothing")
    for files, places in (
            ("tree/sbatch_files", ("tree/build/release/bin", "tree/build/cuda/bin", "tree/bin")),
            ("venv/lib/python3.11/site-packages/lockstep_trainer/share/sbatch_files",
             ("venv/bin",))):
        for place in places:
            (stub.folder / files).mkdir(parents=True, exist_ok=True)
            program = stub.put(f"{place}/lockstep", PROGRAM)
            got = found(files, LOCKSTEP="", **without)
            check(os.path.normpath(got) == str(program), files, got)
            check(found(files, LOCKSTEP="") == of_path, "PATH comes first")
    check(found("tree/sbatch_files", LOCKSTEP="", LOCKSTEP_CONTAINER_IMAGE="i") == "lockstep",
          "the program of an image is its own")


def gpus(stub):
    def submits(script, *words, **environment):
        (stub.folder / "asked").write_text("")
        done = stub.bash(FILES / "submit", script, *words, **environment)
        asked = "submit --check-gpus" in (stub.folder / "asked").read_text()
        return asked, done.returncode, done.stdout.startswith("sbatch ")

    for script, words, expected in (("multi_node", [], True), ("single_gpu", [], True),
                                    ("largest_model", [], False),
                                    ("largest_model", ["--gpus", "4"], True),
                                    ("largest_model", ["--gres=lscratch:1,gpu:2"], True),
                                    ("largest_model", ["-G4"], True),
                                    ("ddp", ["--gpus-per-node=0"], False)):
        check(submits(script, *words) == (expected, 0, True), script, words)
    check(submits("ddp", HAS_NO_CUDA="64") == (True, 64, False), "no CUDA")
    for name in ("LOCKSTEP_ENVIRONMENT", "LOCKSTEP_CONTAINER_IMAGE"):
        check(submits("ddp", HAS_NO_CUDA="64", **{name: "e"}) == (False, 0, True), name)
    done = stub.bash(FILES / "submit", "ddp", LOCKSTEP="/nowhere/lockstep")
    check(done.returncode == 64 and "program /nowhere/lockstep; set LOCKSTEP" in done.stderr,
          done)


def headers(stub):
    """No script leaves the CPUs of its task to Slurm, which would give one."""
    for script in sorted(FILES.glob("*.sbatch")):
        header = [line for line in script.read_text().splitlines() if line.startswith("#SBATCH")]
        said = "#SBATCH --exclusive" in header or any("--cpus-per-task=" in line for line in header)
        check(said, script, header)


for case in (statuses, not_started, no_kill, submitted, cpus, containers, programs, gpus, headers):
    with tempfile.TemporaryDirectory(prefix="lockstep_stub_") as made:
        case(Batch(made))
    print(f"ok     {case.__name__}", flush=True)
