"""Starts Lockstep's programs for the tests of this folder, and reads what they leave behind.

A test is a script: `with Test("name") as test:` gives it a temporary folder, a seed and a list of
cases; it ends what it started, by process id, and exits 1 when a case failed. The seed is printed.
It is always the same one, unless LOCKSTEP_SEED names another; with the argument `soak` it is a
fresh one. Programs come from LOCKSTEP_BIN_DIR. Standard library only.

What a test needs to happen it makes happen: a worker stops itself at a moment that debug.stop_at
names (worker_link/progress_page.h), and the test then kills it, does something else, or wakes it.
"""
import contextlib
import ctypes
import json
import os
import pathlib
import random
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time
import traceback

SOURCE_DIR = pathlib.Path(os.environ.get("LOCKSTEP_SOURCE_DIR",
                                         pathlib.Path(__file__).resolve().parents[2]))
BIN_DIR = pathlib.Path(os.environ.get("LOCKSTEP_BIN_DIR", SOURCE_DIR / "build/release/bin"))

PHASES = ("start", "load", "warmup", "step", "update", "eval", "save", "done")
SAVE_PHASES = ("idle", "staging", "writing", "voting", "committed", "failed")
PAGE = struct.Struct("<qqqiiq")  # worker_link/progress_page.h: Layout
TURN = struct.Struct("<I")       # what follows it
PARKED = 2

DEFAULT_SEED = 1
SOAK = sys.argv[1:] == ["soak"]

EXIT_CONFIG, EXIT_BUG, EXIT_NO_MEMORY, EXIT_DISK_FULL = 64, 70, 71, 74
EXIT_RESUME, EXIT_PEER_LOST, EXIT_WRONG_BITS = 75, 76, 77
RUN_TIMEOUT_S = 100

# A step of this model takes a few milliseconds: for what is repeated many times.
TINY = {"model.dim": 64, "model.n_layers": 2, "model.n_heads": 4, "model.n_kv_heads": 2,
        "model.ffn_dim": 176, "training.seq_len": 64, "training.local_batch_size": 2,
        "training.steps": 20, "training.slots": 4, "optimizer.lr": 2e-3,
        "lr_scheduler.warmup_steps": 4, "metrics.log_freq": 1,
        "metrics.enable_tensorboard": "false", "validation.freq": 0}
# One that steps and saves slowly enough to be caught at it: 1.6 M parameters, 19 MB of state.
SMALL = TINY | {"model.dim": 256, "model.n_heads": 8, "model.n_kv_heads": 4, "model.ffn_dim": 704}
NO_CHECKPOINTS = {"checkpoint.enable": "false"}

WORDS = (
    "the of and to a in that it is was he for on are with as his they be at one have this "
    "from or had by hot but some what there we can out other were all your when up use "
    "word how said an each she which do their time if will way about many then them would "
    "write like so these her long make thing see him two has look more day could go come "
    "did my sound no most number who over know water than call first people may down side "
    "been now find"
).split()


def check(condition, *message):
    """An assertion that python -O keeps."""
    if not condition:
        raise AssertionError(" ".join(str(part) for part in message))


class Page:
    """A worker's progress page, read from outside."""

    def __init__(self, path):
        self.path = path

    def read(self):
        """(step, phase, save phase, committed step)"""
        step, _, committed_plus_1, phase, save_phase, _ = self._words()
        return step, PHASES[phase], SAVE_PHASES[save_phase], committed_plus_1 - 1

    def snapshot_step(self):
        return self._words()[-1] - 1

    def parked(self):
        """Whether its process has let go of its generation."""
        return TURN.unpack_from(self._raw(), PAGE.size)[0] == PARKED

    def _words(self):
        return PAGE.unpack_from(self._raw())

    def _raw(self):
        """All zero where there is no page yet, or no longer."""
        try:
            raw = self.path.read_bytes()
        except FileNotFoundError:
            raw = b""
        return raw.ljust(PAGE.size + TURN.size, b"\0")


class Ranks:
    """The workers of one generation, started as srun or an agent would; `own_keys(rank)` are those
    that one rank has otherwise; `stop_at` is "RANK:MOMENT:STEP", where that rank stops itself."""

    def __init__(self, test, folder, world_size, keys, number, own_keys, stop_at, worker):
        self.name = f"{pathlib.Path(folder).name} W={world_size}"
        if stop_at:
            self.stop_at, self.stop_rank = stop_at, int(stop_at.split(":")[0])
            keys = keys | {"debug.stop_at": f"{number}:{stop_at}"}
        store = test.folder / f"store_{number}"
        self.logs = [test.folder / f"log_{number:03d}_{rank}" for rank in range(world_size)]
        self.pages = [Page(test.folder / f"page_{number:03d}_{rank}") for rank in range(world_size)]
        self.processes = []
        of_a_node = int(test.environment.get("LOCAL_WORLD_SIZE", world_size))
        for rank in range(world_size):
            environment = test.environment | {
                "RANK": str(rank), "WORLD_SIZE": str(world_size),
                "LOCAL_RANK": str(rank % of_a_node),
                "LOCKSTEP_STORE": f"file:{store}", "LOCKSTEP_NONCE": f"{number:06x}",
                "LOCKSTEP_GENERATION": str(number),
                "LOCKSTEP_PROGRESS_PAGE": str(self.pages[rank].path)}
            command = [program(worker), "train", *flags(keys | own_keys(rank)),
                       f"--job.dump_folder={folder}"]
            self.processes.append(test.start(command, self.logs[rank], environment))

    def log(self, rank=0):
        return self.logs[rank].read_text(errors="replace")

    def all_logs(self):
        return "".join(self.log(rank) for rank in range(len(self.logs)))

    def running(self):
        return any(process.poll() is None for process in self.processes)

    def stops(self):
        """Waits until the rank of the stop point has stopped itself; False: it ended before."""
        process = self.processes[self.stop_rank]
        wait_until(lambda: process.poll() is not None or state_of(process.pid) == "T",
                   f"{self.name}: {self.stop_at}", RUN_TIMEOUT_S)
        return process.poll() is None

    def await_stop(self):
        """The process that stops itself, once it has."""
        check(self.stops(), f"{self.name}: it ended before {self.stop_at}\n",
              tail(self.all_logs(), 60))
        return self.processes[self.stop_rank]

    def wait(self, timeout_s=RUN_TIMEOUT_S):
        """Every rank's exit status. One that does not end is killed and fails the case."""
        end = time.monotonic() + timeout_s
        for rank, process in enumerate(self.processes):
            try:
                process.wait(max(0.1, end - time.monotonic()))
            except subprocess.TimeoutExpired:
                self.kill()
                raise AssertionError(
                    f"{self.name}: rank {rank} still runs after {timeout_s} s: "
                    f"{self.pages[rank].read()}\n{tail(self.all_logs())}") from None
        return [process.returncode for process in self.processes]

    def expect(self, status, timeout_s=RUN_TIMEOUT_S):
        """Waits; every rank must have ended with `status`."""
        statuses = self.wait(timeout_s)
        check(set(statuses) == {status}, f"{self.name}: exit statuses {statuses}, not {status}\n",
              tail(self.all_logs()))

    def kill(self):
        for process in self.processes:
            if process.poll() is None:
                process.kill()
        for process in self.processes:
            process.wait()


class Test:
    def __init__(self, name):
        self.name = name
        seed = time.time_ns() % 1_000_000 if SOAK else DEFAULT_SEED
        self.seed = int(os.environ.get("LOCKSTEP_SEED", seed))
        self.random = random.Random(self.seed)
        self.failures, self.cases, self.processes, self.mounts, self.count = [], 0, [], [], 0
        self.environment = {key: value for key, value in os.environ.items()
                            if not key.startswith(("LOCKSTEP_", "SLURM_", "MASTER_", "RANK"))}

    def __enter__(self):
        print(f"{self.name}: LOCKSTEP_SEED={self.seed}", flush=True)
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix=f"lockstep_{self.name}_"))
        self.started = time.monotonic()
        return self

    def __exit__(self, kind, error, trace):
        for process in self.processes:
            if process.poll() is None:
                process.kill()
                process.wait()
        for mount in reversed(self.mounts):
            subprocess.run(["umount", "-l", mount], check=False)
        if kind is not None:
            traceback.print_exception(kind, error, trace)
            self.failures.append("the test itself")
        seconds = time.monotonic() - self.started
        print(f"{self.name}: {self.cases} cases, {len(self.failures)} failed, {seconds:.1f} s, "
              f"LOCKSTEP_SEED={self.seed}")
        for failure in self.failures:
            print(f"FAILED {failure}")
        if os.environ.get("LOCKSTEP_KEEP"):
            print(f"kept: {self.folder}")
        else:
            shutil.rmtree(self.folder, ignore_errors=True)
        sys.stdout.flush()
        os._exit(1 if self.failures else 0)

    @contextlib.contextmanager
    def case(self, name):
        """What goes wrong inside is shown, and the next case still runs."""
        self.cases += 1
        start = time.monotonic()
        try:
            yield
            print(f"ok     {name} ({time.monotonic() - start:.1f} s)", flush=True)
        except Exception:  # whatever it is, it fails this case
            self.failures.append(name)
            print(f"FAILED {name}\n{traceback.format_exc()}", flush=True)

    def run_case(self, name, body):
        """A case for a thread of a pool: several may run at a time."""
        with self.case(name):
            body()

    def start(self, command, log, environment=None):
        with open(log, "ab") as out:
            process = subprocess.Popen(command, stdout=out, stderr=out, stdin=subprocess.DEVNULL,
                                       env=environment or self.environment, preexec_fn=die_with_us)
        self.processes.append(process)
        return process

    def command(self, *words, status=0, timeout_s=60):
        """Runs `lockstep words`, which must end with `status`; what it printed."""
        done = subprocess.run([program("lockstep"), *map(str, words)], env=self.environment,
                              capture_output=True, text=True, errors="replace", timeout=timeout_s,
                              stdin=subprocess.DEVNULL, preexec_fn=die_with_us, check=False)
        printed = done.stdout + done.stderr
        check(status in (None, done.returncode), "lockstep", *words, f"\nexit {done.returncode}, "
              f"not {status}:\n{printed}")
        return printed

    def tokens(self, files=24, words=2500):
        """A folder of token shards, from text that is the same in every run of every test."""
        out = self.folder / f"tokens_{files}_{words}"
        if not out.exists():
            source = self.folder / f"text_{files}_{words}"
            source.mkdir()
            vocabulary = random.Random(20240613)
            for number in range(files):
                chosen = (WORDS[int(len(WORDS) * vocabulary.random() ** 2)] for _ in range(words))
                (source / f"{number:03d}.txt").write_text(" ".join(chosen) + ".\n")
            self.command("prepare", source, "--out", out, "--val-fraction", "0.2")
        return out

    def ranks(self, folder, world_size, keys, own_keys=lambda rank: {}, stop_at=None,
              worker="lockstep-worker"):
        self.count += 1
        return Ranks(self, folder, world_size, {"data.path": self.tokens()} | keys, self.count,
                     own_keys, stop_at, worker)

    def killed_at(self, moment, folder, world_size, keys, own_keys=lambda rank: {}):
        """A generation of which one rank is killed at "RANK:MOMENT:STEP", and then the others."""
        run = self.ranks(folder, world_size, keys, own_keys, moment)
        run.await_stop().kill()
        run.kill()
        return run

    def train(self, name, world_size, keys):
        """A whole run in a folder of its own; the folder."""
        folder = self.folder / name
        self.ranks(folder, world_size, keys).expect(0)
        return folder


def die_with_us():
    pr_set_pdeathsig = 1
    ctypes.CDLL(None).prctl(pr_set_pdeathsig, signal.SIGKILL)


def program(name):
    path = BIN_DIR / name
    check(os.access(path, os.X_OK), f"no {path}: build it, or set LOCKSTEP_BIN_DIR")
    return str(path)


def flags(keys):
    return [f"--{key}={value}" for key, value in keys.items()]


def tail(text, lines=25):
    return "\n".join(text.split("\n")[-lines:])


def json_lines(path):
    """Of a file that is not there none; a last line without its end is still being written."""
    text = path.read_text() if path.exists() else ""
    return [json.loads(line) for line in text[:text.rfind("\n") + 1].splitlines()]


def send_if_there(pid, what):
    """A signal to a process that may have ended."""
    try:
        os.kill(pid, what)
    except ProcessLookupError:
        pass


def send(pid, what):
    """A signal to a process that must be there."""
    check(state_of(pid), f"process {pid} is not there to get {signal.Signals(what).name}")
    os.kill(pid, what)


def state_of(pid):
    """R, S, D, T, … as in /proc; empty for a process that has ended, waited for or not."""
    try:
        state = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return ""
    return "" if state in "ZX" else state


def metrics(folder):
    return json_lines(pathlib.Path(folder) / "metrics.jsonl")


def events(folder, name=None):
    """Those of events.jsonl, or of them those with this name."""
    return [event for event in json_lines(pathlib.Path(folder) / "events.jsonl")
            if name in (None, event["event"])]


def members(folder):
    """What workers.json says of the run; of one that has none yet that it has no workers."""
    try:
        return json.loads((pathlib.Path(folder) / "workers.json").read_text())
    except FileNotFoundError:
        return {"workers": [], "nodes": [], "generation": -1, "world_size": 0}


def stopped_worker(folder, rank, generation):
    """The worker of this rank in workers.json when it has stopped itself (debug.stop_at)."""
    found = members(folder)
    check(found["generation"] <= generation, f"generation {generation} is over: {found}")
    workers = {each["rank"]: each for each in found["workers"]}
    there = found["generation"] == generation and rank in workers
    return workers[rank] if there and state_of(workers[rank]["pid"]) == "T" else None


def curve(folder):
    """{step: (loss_hex, grad_norm_hex)}; a redone step must have repeated both."""
    steps = {}
    for line in metrics(folder):
        bits = line["loss_hex"], line["grad_norm_hex"]
        before = steps.setdefault(line["step"], bits)
        check(before == bits, f"{folder}: step {line['step']} was redone as {bits}, not {before}")
    return steps


def whole_curve(folder, steps):
    found = curve(folder)
    check(sorted(found) == list(range(1, steps + 1)), f"{folder}: steps {sorted(found)}")
    return found


def first_difference(reference, other):
    """None, or where two curves part."""
    for step in sorted(reference.keys() | other.keys()):
        if reference.get(step) != other.get(step):
            return f"step {step}: {reference.get(step)} and {other.get(step)}"
    return None


def check_same(reference, other, what):
    difference = first_difference(reference, other)
    check(difference is None, f"{what}: not the same bits: {difference}")


def committed(folder):
    """Names of the directories with a manifest, newest first."""
    root = pathlib.Path(folder) / "checkpoints"
    names = [path.parent.name for path in root.glob("step_*/manifest.json")]
    return sorted(names, key=checkpoint_order, reverse=True)


def checkpoint_order(name):
    step, generation = name.removeprefix("step_").split("-")[0].split(".g")
    return int(step), int(generation)


def step_of(name):
    return checkpoint_order(name)[0]


def wait_until(condition, what, timeout_s=60, pause_s=0.005):
    """The first value of `condition()` that is true."""
    end = time.monotonic() + timeout_s
    while time.monotonic() < end:
        value = condition()
        if value:
            return value
        time.sleep(pause_s)
    raise AssertionError(f"not within {timeout_s} s: {what}")
