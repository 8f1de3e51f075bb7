"""Programs on the nodes' own disks (sbatch_files/common.sh, `lockstep stage`), with an srun that
runs each node's task here, one after the other, and an sbcast that copies. Needs no Slurm.

  staged.py faults   a program of three lines: what is sent, reused, left alone, removed, and told
  staged.py opens    the real ones, 3 ranks: where the loader looks for their libraries, counted"""
import fcntl
import hashlib
import os
import pathlib
import subprocess
import sys
import tarfile
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "multirank"))
from lockstep_run import (SOURCE_DIR, TINY, Test, check, check_same, flags, program,
                          whole_curve)
from stub import JOB_ID, Stub

# What Slurm's commands are here. srun's words up to "bash" are its own.
COMMANDS = {
    "squeue": 'echo "$SLURM_JOB_NUM_NODES"',
    "sbcast": 'echo "$*" >>"$HERE/sent" && cp "$1" "$HERE/received"',
    "srun": """while [[ "$1" != bash ]]; do shift; done
if [[ " $* " == *" --end-of "* ]]; then echo none && exit; fi
greatest=0
for SLURMD_NODENAME in ${NODES:-node1 node2}; do
  export SLURMD_NODENAME
  if [[ -L "$HERE/received" || -e "$HERE/received" ]]; then
    cp -P "$HERE/received" "$LOCKSTEP_PACK_SENT"
  fi
  LD_DEBUG="${LIBRARIES:+libs}" LD_DEBUG_OUTPUT="${LIBRARIES:-/dev/null}" "$@"
  status=$?
  if ((status > greatest)); then greatest=$status; fi
done
exit "$greatest\""""}
# The program of the shared folder, the one in the pack, and the worker there.
PROGRAM = """#!/bin/bash
case "$1" in
  stage) cat "$HERE/packed" ;;
  --version) [[ "$0" == "$HERE"/bin/* || ! -e "$HERE/${0##*/}_does_not_start" ]] ;;
  *)
    echo "$SLURMD_NODENAME $0 ${LOCKSTEP_ENTRY:-} ${LOCKSTEP_WORKER:-}" \
      "${LOCKSTEP_GPU_WORKER:-}" "${LOCKSTEP_NO_WORKER:-}" >>"$HERE/trained"
    if [[ -n "${TERM_AT_WORK:-}" ]]; then kill -TERM "$PPID"; fi
    if [[ -n "${FAIL_ONCE:-}" ]] && mkdir "$HERE/failed"; then exit 1; fi ;;
esac
"""
JOB = f"""#!/bin/bash
source {SOURCE_DIR}/sbatch_files/common.sh
launch "$@"
"""


class Cluster(Stub):
    """A shared folder, and TMPDIR, the disk of all nodes."""

    def __init__(self, folder):
        super().__init__(folder, "commands")
        self.disk = self.folder / "disk"
        self.disk.mkdir()
        for name, text in COMMANDS.items():
            self.put(f"commands/{name}", f"#!/bin/bash\n{text}\n")
        self.environment |= {"TMPDIR": str(self.disk), "MAX_LAUNCHES": "1",
                             "LOCKSTEP_STAGE": f"{folder}/packs",
                             "LOCKSTEP_WORKER": "/of/the/shared/folder"}

    def job(self, *words, **environment):
        self.put("job.sh", JOB)
        (self.folder / "received").unlink(missing_ok=True)
        return subprocess.run(["bash", self.folder / "job.sh", *words], cwd=self.folder, text=True,
                              env=self.environment | environment, capture_output=True, check=False)


class Fake(Cluster):
    """With PROGRAM, and a pack of it."""

    def __init__(self, folder):
        super().__init__(folder)
        self.shared = self.put("bin/lockstep", PROGRAM)
        self.environment["LOCKSTEP"] = str(self.shared)
        # As the wheel of a login node without GPUs has set them.
        self.environment |= {"LOCKSTEP_GPU_WORKER": "/of/the/wheel", "LOCKSTEP_NO_WORKER": "none"}
        self.pack = self.folder / "packs/lockstep.tar"
        self.pack.parent.mkdir()
        self.packs("bin/lockstep", "bin/lockstep-worker")

    def packs(self, *names):
        with tarfile.open(self.pack, "w") as archive:
            for name in names:
                archive.add(self.shared, name)
        self.digest = hashlib.sha256(self.pack.read_bytes()).hexdigest()
        self.put("packed", f"{self.digest} {self.pack}\n")

    def own(self, node="node1", job=JOB_ID):
        return self.disk / f"lockstep-stage.{os.getuid()}.{job}.{node}"

    def whole(self, node="node1", boot=None):
        """Where the node has what it unpacked."""
        boot = boot or pathlib.Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return self.own(node) / f"{self.digest}.{boot}"

    def ends(self, *said, status=0, staged=("node1", "node2"), left=(), entry=None, gpus=False,
             launches=1, **environment):
        """A job: its status, what it says, which nodes train with what is on their disk, and
        nothing is left there."""
        (self.folder / "trained").unlink(missing_ok=True)
        done = self.job("a.toml", MAX_LAUNCHES=str(launches), **environment)
        trained = (self.folder / "trained").read_text().splitlines() \
            if (self.folder / "trained").exists() else []
        of_login = " ".join(self.environment[f"LOCKSTEP_{name}"]
                            for name in ("WORKER", "GPU_WORKER", "NO_WORKER"))

        def line(node):
            if node not in staged:
                return f"{node} {self.shared}  {of_login}"
            worker = f"{self.whole(node)}/bin/lockstep-worker"
            return (f"{node} {self.whole(node)}/bin/lockstep {entry or self.shared} {worker} "
                    f"{worker if gpus else ''} ")
        expected = [line(node) for node in environment.get("NODES", "node1 node2").split()]
        expected *= launches
        if status == 0:
            check(trained == expected, trained, expected, done.stderr)
        else:
            check(not trained, "it trained", trained)
        check(done.returncode == status, done)
        for line in said:
            check(line in done.stderr, f"it does not say: {line}\n{done.stderr}")
        if not said:
            check(not done.stderr, done.stderr)
        found = sorted(self.disk.iterdir())
        check(found == sorted(left), found)


def sent(fake):
    fake.ends()
    [line] = (fake.folder / "sent").read_text().splitlines()
    check(line.startswith(f"{fake.pack} {fake.disk}/lockstep-stage."), line)
    fake.ends(entry="/env/bin/lockstep", LOCKSTEP_ENTRY="/env/bin/lockstep")
    fake.ends(TERM_AT_WORK="1")  # the agents have saved, and the disk is tidied all the same
    before = len((fake.folder / "sent").read_text().splitlines())
    fake.ends("launch 1 of 2 ended with status 1", launches=2, FAIL_ONCE="1")
    after = len((fake.folder / "sent").read_text().splitlines())
    check(after == before + 2, "each launch is sent the pack", before, after)


def on_gpus(fake):
    """A pack with LibTorch for GPUs: a wheel's `lockstep` counts them where its worker is told to
    be for them."""
    fake.packs("bin/lockstep", "bin/lockstep-worker", "lib/libtorch_cuda.so")
    fake.ends(gpus=True)


def not_sent(fake):
    """A node that sbcast did not reach, as one that joins later, reads the pack itself."""
    read = [f"{node}: sbcast sent no complete pack to this node; reading {fake.pack}"
            for node in ("node1", "node2")]
    fake.put("commands/sbcast", "#!/bin/bash\nexit 3\n")
    fake.ends("sbcast ended with status 3", *read)
    fake.put("commands/sbcast", '#!/bin/bash\nhead -c 1000 "$1" >"$HERE/received"\n')
    fake.ends(*read)


def without(fake):
    """No pack, or none that may be used: the programs of the shared folder."""
    unstaged = "staging failed; using the programs of the shared folder"
    fake.put("commands/tar", "#!/bin/bash\necho tar: No space left on device >&2\nexit 2\n")
    fake.ends("No space left on device", f"node1: {unstaged}", staged=())
    (fake.folder / "commands/tar").unlink()
    for name in ("lockstep", "lockstep-worker"):  # a disk that is mounted noexec, another machine
        (fake.folder / f"{name}_does_not_start").touch()
        fake.ends(f"node1: {unstaged}", f"node2: {unstaged}", staged=())
        (fake.folder / f"{name}_does_not_start").unlink()
    fake.put("commands/flock", "#!/bin/bash\nexit 1\n")
    fake.ends(f"node1: cannot lock {fake.own()}", f"node1: {unstaged}", staged=())
    (fake.folder / "commands/flock").unlink()
    fake.pack.write_bytes(fake.pack.read_bytes()[:-512] + b"x" * 512)
    fake.ends(f"node1: {fake.pack} is damaged", f"node1: {unstaged}", staged=())
    fake.pack.unlink()
    fake.ends("sbcast ended with status 1", f"node1: {unstaged}", staged=())
    fake.ends("nothing is staged, because the programs are in the container image", staged=(),
              LOCKSTEP_CONTAINER_IMAGE="image")
    (fake.folder / "packed").unlink()  # lockstep stage fails
    fake.ends(f"\n{unstaged}", staged=())


def not_ours(fake):
    """A name in /tmp that somebody else has taken is neither used nor touched."""
    elsewhere = fake.folder / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "precious").touch()
    for make in (lambda: fake.own().symlink_to(elsewhere), fake.own().touch):
        make()
        fake.ends(f"node1: cannot create {fake.own()}, or another user owns it",
                  staged=("node2",), left=[fake.own()], NODES="node2 node1")
        fake.own().unlink()
    if os.getuid() == 0:
        fake.own().mkdir()
        os.chown(fake.own(), 1, 1)
        fake.ends("or another user owns it", staged=("node2",), left=[fake.own()],
                  NODES="node2 node1")
        fake.own().rmdir()
    check((elsewhere / "precious").exists(), "what a link pointed at is gone")
    fake.ends("staging failed", staged=(), TMPDIR="/nowhere")


def reused(fake):
    """What a killed start of this job left whole is used again; not that of another boot."""
    fake.put("commands/sbcast", "#!/bin/bash\n")
    for name in ("lockstep", "lockstep-worker"):
        fake.put(fake.whole().relative_to(fake.folder) / "bin" / name, PROGRAM)
    fake.ends(NODES="node1")
    fake.put(fake.whole(boot="another").relative_to(fake.folder) / "bin/lockstep", PROGRAM)
    fake.ends("node1: sbcast sent no complete pack", NODES="node1")


def half_removed(fake):
    """A start that was killed while it removed its folder: what is left is not taken for whole."""
    fake.put("commands/sbcast", "#!/bin/bash\n")
    fake.put("commands/rm", '#!/bin/bash\n[[ "$*" == *.node1 ]] || PATH="${PATH#*:}" rm "$@"\n')
    fake.ends("node1: sbcast sent no complete pack", NODES="node1", left=[fake.own()])
    (fake.folder / "commands/rm").unlink()
    fake.ends("node1: sbcast sent no complete pack", NODES="node1")


def left_by_others(fake):
    """What killed jobs left goes; what another job uses stays."""
    dead, used = fake.own(job="5"), fake.own(job="6")
    for folder in (dead, used):
        (folder / "bin").mkdir(parents=True)
    old, new = (fake.put(f"disk/lockstep-stage.{os.getuid()}.{job}.1.tar", "") for job in (3, 4))
    os.utime(old, (0, 0))
    descriptor = os.open(used, os.O_RDONLY)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    other = fake.own("node3", job="5")  # on a disk that nodes share, with locks of each alone
    other.mkdir()
    fake.ends(left=[used, new, other])
    os.close(descriptor)
    fake.ends(left=[new, other])
    other.rmdir()
    # Whoever had the lock on our own folder removes it, and then we get the lock.
    fake.put("commands/flock", f'''#!/bin/bash
PATH="${{PATH#*:}}" flock "$@" || exit
if [[ "$1" == --timeout ]] && mkdir "$HERE/was_here"; then rmdir {fake.own()}; fi 2>/dev/null
''')
    fake.ends(left=[new], NODES="node1")


def told_to_stop(fake):
    """While it unpacks it leaves, to be started again; while it tidies up it goes on."""
    fake.put("commands/tar", '#!/bin/bash\nkill -TERM "$PPID"\nPATH="${PATH#*:}" tar "$@"\n')
    fake.ends("ended with status 75", status=75)
    (fake.folder / "commands/tar").unlink()
    fake.put("commands/rm", '#!/bin/bash\n[[ "$*" != *.node? ]] || kill -TERM "$$"\n'
                            'PATH="${PATH#*:}" rm "$@"\n')
    fake.ends()


def told_by_loader(folder, words):
    """What follows these words in what the loader said into files of this folder."""
    return [line.split(words)[1].strip() for path in folder.iterdir()
            for line in path.read_text(errors="replace").splitlines() if words in line]


def opens():
    with Test("staged") as test:
        cluster, keys = Cluster(test.folder), TINY | {"training.steps": 3}
        cluster.environment["LOCKSTEP"] = program("lockstep")
        cluster.environment["SLURM_JOB_NUM_NODES"] = "1"
        del cluster.environment["LOCKSTEP_WORKER"]
        looked, loaded = {}, {}

        def run(name, **environment):
            folder, said = test.folder / name, test.folder / f"{name}_libraries"
            said.mkdir()
            words = flags(keys | {"data.path": test.tokens(), "job.dump_folder": folder})
            done = cluster.job(cluster.put("empty.toml", ""), *words, "--nproc-per-node=3",
                               NODES="node1", LIBRARIES=str(said / "of"), **environment)
            check(done.returncode == 0 and "staging failed" not in done.stderr, done)
            local = (f"{cluster.disk}/", "/lib/", "/lib64/", "/usr/lib/", "/usr/lib64/")
            looked[name] = [path for path in told_by_loader(said, "trying file=")
                            if not path.startswith(local)]
            loaded[name] = [path for path in told_by_loader(said, "calling init: ")
                            if path.endswith("/libtorch_cpu.so")]
            return whole_curve(folder, keys["training.steps"])

        with test.case("the same losses"):
            check_same(run("shared", LOCKSTEP_STAGE=""), run("staged"), "staged")
        with test.case("no library of the shared folder is looked for"):
            print(f"       3 ranks of a node: the loader tries {len(looked['shared'])} names on "
                  f"the shared folder, and {len(looked['staged'])} when staged", flush=True)
            check(len(loaded["shared"]) >= 3 and len(looked["shared"]) > 40, looked["shared"])
            check(not looked["staged"], looked["staged"][:20])
            check(len(loaded["staged"]) >= 3, loaded)
            check(all(path.startswith(f"{cluster.disk}/") for path in loaded["staged"]), loaded)
        with test.case("nothing is left on the node's disk"):
            check(not list(cluster.disk.iterdir()), list(cluster.disk.iterdir()))


if sys.argv[1] == "opens":
    opens()
else:
    for case in (sent, not_sent, on_gpus, without, not_ours, reused, half_removed, left_by_others,
                 told_to_stop):
        with tempfile.TemporaryDirectory(prefix="lockstep_staged_") as made:
            case(Fake(os.path.realpath(made)))
        print(f"ok     {case.__name__}", flush=True)
