#!/usr/bin/env python3
"""A Slurm of its own: munged, slurmctld and a few slurmd, in namespaces of their own.

  lab.py [--nodes N] [--] COMMAND…    brings it up, runs COMMAND inside, ends with its status
  lab.py --check                      exit 0 when this machine can, 77 with the reason otherwise

Inside, the commands of Slurm work as on any cluster (SLURM_CONF is set). Nothing outside is
touched: mounts, process ids, network, host name and IPC are the lab's own, and so are
configuration, spool, key and socket, in a temporary folder. The lab's process 1 ends with us, and
every process with it.

As a library: enter() at the start of a script moves it into the namespaces; then
`with Lab(5) as lab`. A "node" is a slurmd with its own name and port: the nodes share the host name
and the address, so SLURMD_NODENAME alone tells them apart. `Lab.disk` is another folder on each.
"""
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "multirank"))
from lockstep_run import send_if_there, state_of, wait_until

INSIDE = "LOCKSTEP_SLURM_LAB"
SKIPPED = 77  # the test did not run (CTest: SKIP_RETURN_CODE)
HOST = "slurmlab"
FIRST_PORT = 17001
UP_TIMEOUT_S = 60
COMMAND_TIMEOUT_S = 100
# What a node claims to have, so that headers written for a cluster are accepted as they are.
CPUS, GPUS, MEMORY_MB = 64, 4, 400_000
PROGRAMS = ("unshare", "ip", "munged", "slurmctld", "slurmd", "sbatch", "srun", "scontrol")

# cred_expire: a requeued job may start again this much later (120 s where nobody says otherwise).
# SlurmdTimeout, BatchStartTimeout: a busy machine makes no node look lost, and no job. That one is
# lost is told by hand.
CONFIG = """ClusterName=lab
SlurmctldHost={host}(127.0.0.1)
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
CredType=cred/munge
AuthInfo=socket={folder}/munge/socket,cred_expire=5
StateSaveLocation={folder}/ctld
SlurmdSpoolDir={folder}/spool/%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd-%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SlurmdParameters=config_overrides
GresTypes=gpu
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SwitchType=switch/none
MpiDefault=none
ReturnToService=2
SlurmdTimeout=300
BatchStartTimeout=100
KillWait=100
MinJobAge=600
OverTimeLimit=0
PropagateResourceLimits=NONE
SchedulerParameters=batch_sched_delay=0,sched_interval=1,bf_interval=1
PartitionName=lab Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""


def can_run(programs=PROGRAMS):
    """None, or why there is no lab on this machine."""
    search = os.pathsep.join((os.environ.get("PATH", ""), "/usr/sbin", "/sbin"))
    missing = [name for name in programs if not shutil.which(name, path=search)]
    if missing:
        return f"no {', '.join(missing)} here: tools/setup --test installs them"
    tried = subprocess.run([*unshare(), "true"], capture_output=True, text=True, check=False)
    if tried.returncode:
        return f"no namespaces here: {tried.stderr.strip()}"
    return None


def unshare():
    root = [] if os.geteuid() == 0 else ["--map-root-user"]
    return ["unshare", *root, "--net", "--pid", "--uts", "--ipc", "--mount", "--fork",
            "--mount-proc", "--kill-child=SIGKILL"]


def enter(programs=PROGRAMS):
    """Starts this script again inside new namespaces, and returns there; exits where that is
    impossible. Process 1 is a shell, which buries orphans."""
    if os.environ.get(INSIDE):
        return
    reason = can_run(programs)
    if reason:
        print(f"SKIPPED: {reason}", flush=True)
        sys.exit(SKIPPED)
    environment = {name: value for name, value in os.environ.items()
                   if not name.startswith(("SLURM", "SBATCH", "SRUN", "LOCKSTEP_SLURM"))}
    environment[INSIDE] = "1"
    environment["PATH"] = os.pathsep.join((environment.get("PATH", ""), "/usr/sbin", "/sbin"))
    inner = [*unshare(), "bash", "-c", '"$@"; exit $?', "lab", sys.executable, *sys.argv]
    os.execvpe(inner[0], inner, environment)


def run(*command, timeout_s=COMMAND_TIMEOUT_S, environment=None, cwd=None):
    """(exit status, what it printed)"""
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True,
                          errors="replace", timeout=timeout_s, check=False, cwd=cwd,
                          env=environment, stdin=subprocess.DEVNULL)
    return done.returncode, done.stdout + done.stderr


def must(*command, **options):
    status, printed = run(*command, **options)
    if status:
        raise AssertionError(f"{' '.join(map(str, command))}: exit {status}\n{printed}")
    return printed


def contents(path):
    """Of a file that may be gone, or in /proc of a process that has ended: then nothing."""
    try:
        return pathlib.Path(path).read_bytes()
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return b""


def words_of(path):
    return [word.decode(errors="replace") for word in contents(path).split(b"\0") if word]


def parent_of(pid):
    """0: it has none, or is gone."""
    fields = contents(f"/proc/{pid}/stat").rpartition(b")")[2].split()
    return int(fields[1]) if fields else 0


def environment_of(pid):
    """Of a process that has not ended; else nothing."""
    words = words_of(f"/proc/{pid}/environ")
    pairs = (word.split("=", 1) for word in words if "=" in word)
    return dict(pairs) if state_of(pid) else {}


def processes():
    """(pid, environment) of every process of the lab that has one and has not ended."""
    for entry in pathlib.Path("/proc").iterdir():
        environment = environment_of(entry.name) if entry.name.isdigit() else {}
        if environment:
            yield int(entry.name), environment


def command_line(pid):
    return words_of(f"/proc/{pid}/cmdline")


def depth(pid):
    """How many ancestors it has."""
    parent = parent_of(pid)
    return 1 + depth(parent) if parent else 0


def listeners():
    """The TCP ports that anybody of the lab listens on."""
    ports = set()
    for table in ("tcp", "tcp6"):
        for line in pathlib.Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A":
                ports.add(int(fields[1].rsplit(":", 1)[1], 16))
    return ports


class Lab:
    """Owns the daemons. Requires: enter() before."""

    def __init__(self, nodes=5):
        self.nodes = [f"node{number}" for number in range(1, nodes + 1)]
        self.daemons = {}
        self.answer, self.asked, self.asking = {}, 0.0, threading.Lock()

    def __enter__(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="lockstep_lab_"))
        self.folder.chmod(0o755)
        self.disk = self.folder / "disk"
        self.disk.mkdir()
        try:
            self._mounts_and_network()
            self._write_config()
            self._munge()
            self.start_controller()
            for node in self.nodes:
                self.start_node(node)
            wait_until(lambda: set(self.states().values()) == {"idle"}, "all nodes idle",
                       UP_TIMEOUT_S, 0.1)
        except BaseException:
            self.__exit__()
            raise
        self.ports = listeners()
        return self

    def __exit__(self, *_):
        for process in self.daemons.values():
            if process.poll() is None:
                process.kill()
            process.wait()
        if os.environ.get("LOCKSTEP_KEEP"):
            print(f"kept: {self.folder}")
        else:
            shutil.rmtree(self.folder, ignore_errors=True)

    def _mounts_and_network(self):
        must("mount", "-t", "tmpfs", "tmpfs", "/dev/shm")
        names = "".join(f"127.0.0.1 {name}\n" for name in ("localhost", HOST, *self.nodes))
        (self.folder / "hosts").write_text(names)
        must("mount", "--bind", self.folder / "hosts", "/etc/hosts")
        must("hostname", HOST)
        must("ip", "link", "set", "lo", "up")
        # With `lo` alone no name is resolved at all (getaddrinfo's AI_ADDRCONFIG).
        must("ip", "link", "add", "v0", "type", "veth", "peer", "name", "v1")
        must("ip", "addr", "add", "10.99.0.1/24", "dev", "v0")
        for link in ("v0", "v1"):
            must("ip", "link", "set", link, "up")

    def _write_config(self):
        os.environ["SLURM_CONF"] = str(self.folder / "slurm.conf")
        text = CONFIG.format(host=HOST, folder=self.folder)
        for node in self.nodes:
            (self.folder / "spool" / node).mkdir(parents=True)
            (self.folder / "disks" / node).mkdir(parents=True)
            text += (f"NodeName={node} NodeHostname={HOST} NodeAddr=127.0.0.1 "
                     f"Port={self._port(node)} CPUs={CPUS} RealMemory={MEMORY_MB} "
                     f"Gres=gpu:{GPUS}\n")
        (self.folder / "ctld").mkdir()
        (self.folder / "slurm.conf").write_text(text)
        (self.folder / "cgroup.conf").write_text("CgroupAutomount=no\n")
        # Character devices that are everywhere stand for GPUs.
        (self.folder / "gres.conf").write_text(
            "AutoDetect=off\nName=gpu File=/dev/null,/dev/zero,/dev/full,/dev/random\n")

    def _port(self, node):
        return FIRST_PORT + self.nodes.index(node)

    def _munge(self):
        home = self.folder / "munge"
        home.mkdir(mode=0o755)
        key = home / "key"
        key.write_bytes(os.urandom(128))
        key.chmod(0o400)
        self._start("munged", "munged", "--foreground", "--force", f"--key-file={key}",
                    f"--socket={home}/socket", f"--pid-file={home}/pid", f"--seed-file={home}/seed",
                    f"--log-file={home}/log")
        wait_until(lambda: (home / "socket").exists(), "munge's socket", UP_TIMEOUT_S, 0.02)

    def _start(self, name, *command):
        with open(self.folder / f"{name}.out", "ab") as out:
            self.daemons[name] = subprocess.Popen(command, stdout=out, stderr=out,
                                                  stdin=subprocess.DEVNULL)

    def start_controller(self):
        self._start("slurmctld", "slurmctld", "-D")

    def stop_controller(self):
        """In order: killed, it forgets jobs of the last seconds."""
        self.daemons["slurmctld"].terminate()
        self.daemons["slurmctld"].wait(COMMAND_TIMEOUT_S)

    def start_node(self, node):
        mounted = 'mount --bind "$1" "$2" && exec slurmd -D -N "$3"'
        self._start(node, "unshare", "--mount", "bash", "-c", mounted, "node",
                    self.folder / "disks" / node, self.disk, node)

    def stop_node(self, node):
        """Its slurmd alone: what runs there goes on, and Slurm does not know."""
        self.daemons[node].kill()
        self.daemons[node].wait()

    def states(self):
        """{node: state}, as sinfo shows it: idle, alloc, mix, down, down*, …"""
        status, printed = run("sinfo", "--noheader", "--Node", "--format=%N %t")
        return dict(line.split() for line in printed.splitlines()) if status == 0 else {}

    def job(self, job_id):
        """What scontrol tells of a job, or of a task of an array; nothing while slurmctld does not
        answer. Many cases wait at a time: one question is for all jobs, and for all that wait."""
        called = time.monotonic()
        with self.asking:
            if self.asked < called:
                self.asked = time.monotonic()
                self.answer = self._all_jobs()
            return self.answer.get(job_id, {})

    def _all_jobs(self):
        status, printed = run("scontrol", "-o", "show", "job")
        jobs = {}
        for line in printed.splitlines() if status == 0 else ():
            told = dict(word.split("=", 1) for word in line.split() if "=" in word)
            jobs[told.get("JobId")] = told
            if "ArrayTaskId" in told:
                jobs[f"{told['ArrayJobId']}_{told['ArrayTaskId']}"] = told
        return jobs

    def node_processes(self, node):
        """The slurmstepds of a node and all that runs below them."""
        own = {pid for pid, environment in processes()
               if environment.get("SLURMD_NODENAME") == node}
        parents = {parent_of(pid) for pid in own} - own
        daemons = {pid for pid in parents if "slurmstepd" in "".join(command_line(pid)[:1])}
        return own | daemons

    def _stop(self, node):
        """Whether all processes of a node are stopped; the others are told to."""
        found = self.node_processes(node)
        running = {pid for pid in found if state_of(pid) not in ("T", "")}
        for pid in running:
            send_if_there(pid, signal.SIGSTOP)
        return not running

    def kill_node(self, node):
        """Power off; Slurm hears of it at once, not after SlurmdTimeout."""
        # None may see another one's end: a batch script that outlived its srun would end the job.
        # Until all are stopped, as a process may start another one meanwhile.
        wait_until(lambda: self._stop(node), f"all processes of {node} are stopped")
        # A child before its parent: a group of stopped processes that loses its parent gets SIGHUP
        # and SIGCONT from the kernel, and srun would cancel the step with its last breath.
        for pid in sorted(self.node_processes(node), key=depth, reverse=True):
            send_if_there(pid, signal.SIGKILL)
        self.stop_node(node)
        must("scontrol", "update", f"nodename={node}", "state=down", "reason=lost")

    def node_back(self, node):
        """Slurm takes a node back by itself when its slurmd, which listens then, tells of it. (One
        that is resumed by hand may get a job before it listens: srun cannot reach it.)"""
        self.start_node(node)
        wait_until(lambda: self._port(node) in listeners(), f"{node} listens", UP_TIMEOUT_S, 0.02)
        wait_until(lambda: self.states().get(node) in ("idle", "mix", "alloc", "comp"),
                   f"{node} up again", UP_TIMEOUT_S, 0.1)


def main(words):
    if words == ["--check"]:
        reason = can_run()
        print(reason or "a lab is possible here")
        return SKIPPED if reason else 0
    nodes = 5
    if words[:1] == ["--nodes"] and len(words) > 1:
        nodes, words = int(words[1]), words[2:]
    words = words[1:] if words[:1] == ["--"] else words
    if not words or words[0].startswith("-"):
        print(__doc__)
        return 64
    enter()
    with Lab(nodes):
        return subprocess.run(words, check=False).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
