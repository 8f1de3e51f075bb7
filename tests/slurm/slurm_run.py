"""Jobs of the lab: submitting them as a user does, holding them at a step, seeing how they end."""
import contextlib
import dataclasses
import operator
import os
import pathlib
import re
import signal
import threading

import lab
from lockstep_run import (TINY, check, events, flags, members, metrics, program, send,
                          send_if_there, state_of, tail, wait_until)

# Long enough to be caught on the way, and short on a machine that is busy with many cases.
STEPS = 200
# A busy machine must not make an agent look lost (lab.py has the same for Slurm's nodes): the test
# kills or freezes what is to be lost.
KEYS = TINY | {"training.steps": STEPS, "checkpoint.interval": 20, "launcher.silence_seconds": 5}
END_TIMEOUT_S = 240  # on a machine that is busy with the other cases
MOVE_EVERY_S = 2  # of a job that is held: workers that stand still for 5 s are taken for lost
POLICIES = {"requeue, no-kill": ["--requeue"], "requeue, kill": ["--requeue", "--no-kill=off"],
            "no-requeue, no-kill": [], "no-requeue, kill": ["--no-kill=off"]}
ENDED = ("COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL", "PREEMPTED")


def job_environment(cluster, test):
    return test.environment | {"TMPDIR": str(cluster.folder), "LOCKSTEP": program("lockstep"),
                               "SLURM_CONF": os.environ["SLURM_CONF"]}


def run_words(test, folder, keys=None, nproc=2):
    """CONFIG and all keys of a run in `folder`."""
    config = test.folder / "empty.toml"
    config.write_text("# every key comes from the command line\n")
    return [str(config), *flags({"data.path": test.tokens()} | KEYS | (keys or {})),
            f"--job.dump_folder={folder}", "--nproc-per-node", str(nproc)]


def submitted_id(printed):
    return re.search(r"Submitted batch job (\d+)", printed).group(1)


def submit(cluster, test, name, words=(), keys=None, script=None, folder=None, nproc=2,
           environment=None, outlives_srun=False):
    """A job by `lockstep submit`; with `script` by sbatch, and $LOCKSTEP and $RUN_WORDS are set.
    `outlives_srun`: each node writes its agent's output itself, which else ends with the batch
    host."""
    home = test.folder / "jobs"
    home.mkdir(exist_ok=True)
    folder = folder or test.folder / "runs" / name
    words_of_run = run_words(test, folder, keys, nproc)
    output = ["--exclusive", f"--output={home}/{name}-%j.out"]
    if script:
        path = home / f"{name}.sh"
        path.write_text(script)
        command = ["sbatch", "--open-mode=append", *output, *words, path]
    else:
        command = [program("lockstep"), "submit", f"--job-name={name}", *output, *words,
                   *words_of_run]
    own = {"RUN_WORDS": " ".join(words_of_run)} | (environment or {})
    if outlives_srun:  # two names of `srun --output`: until 22.05, and since
        own |= dict.fromkeys(("SLURM_STDOUTMODE", "SRUN_OUTPUT"), f"{home}/{name}-%j-%t.out")
    printed = lab.must(*command, environment=job_environment(cluster, test) | own, cwd=home)
    return Job(cluster, name, submitted_id(printed), folder, home)


@dataclasses.dataclass
class Running:
    """Who runs a job that is held, all alive: process ids, and Slurm's names of nodes."""
    coordinator: str  # its node
    agents: dict      # by node
    workers: dict     # likewise, a list
    pages: list       # the workers' progress pages
    silent: set = dataclasses.field(default_factory=set)
    lock: threading.Lock = dataclasses.field(default_factory=threading.Lock)

    def all_workers(self):
        return [pid for pids in self.workers.values() for pid in pids]

    def send(self, what):
        """To the workers, but those of silent nodes."""
        with self.lock:
            for node in self.workers.keys() - self.silent:
                for pid in self.workers[node]:
                    send_if_there(pid, what)

    def states_at_rest(self):
        """Of the workers, as state_of says; none while one of them runs."""
        states = {state_of(pid) for pid in self.all_workers()}
        return states if states <= {"T", ""} else None

    def progress(self):
        """Of each worker something that changes when it moves on, or lets go."""
        return [lab.contents(page) for page in self.pages]

    def freeze(self, node):
        """The node falls silent: its connections stand, and nobody answers."""
        with self.lock:
            self.silent.add(node)
            for pid in (self.agents[node], *self.workers[node]):
                send(pid, signal.SIGSTOP)

    def wake(self, node):
        """The agent last: as soon as it runs it may end its workers, and look their ids up no
        more."""
        for pid in (*self.workers[node], self.agents[node]):
            send(pid, signal.SIGCONT)


class Job:
    """A job that was submitted, its run folder, and the folder of its output NAME-*.out."""

    def __init__(self, cluster, name, job_id, folder, home):
        self.cluster, self.name, self.id = cluster, name, job_id
        self.folder, self.home = folder, home
        self.seen, self.early = False, 0  # restarts before it was seen to run

    def info(self):
        """What Slurm tells of the job, as soon as it answers."""
        return self.wait(lambda: self.cluster.job(self.id), "an answer of scontrol")

    def log(self):
        return "".join(path.read_text(errors="replace")
                       for path in sorted(self.home.glob(f"{self.name}-[0-9]*.out")))

    def describe(self):
        told = "\n".join(line for line in self.log().splitlines() if not line.startswith("step: "))
        return (f"{self.name}, job {self.id}: {self.cluster.job(self.id)}\n"
                f"{len(metrics(self.folder))} steps\n{tail(told, 40)}")

    def wait(self, condition, what, timeout_s=END_TIMEOUT_S, pause_s=0.1):
        try:
            return wait_until(condition, what, timeout_s, pause_s)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.describe()}") from None

    def newest_steps(self, since=0):
        """Those of the launcher's newest generation, if it began after `since`."""
        starts = [event["t"] for event in self.events("generation_start")]
        return [line for line in metrics(self.folder)
                if starts and line["t"] > starts[-1] > since]

    @contextlib.contextmanager
    def held(self, step, start=0, nodes=1):
        """Who runs it, once a generation on so many nodes has done `step`, or more, after `start`
        restarts of the job. Until the block ends the workers are stopped, but for a moment now and
        then: the run waits for what is done to it, however long that takes, and costs nothing."""
        now = self.wait(lambda: self._stopped(step, start, nodes), f"step {step} on {nodes} nodes",
                        pause_s=0.01)
        ended = threading.Event()

        def keep_alive():
            while not ended.wait(MOVE_EVERY_S):
                before = now.progress()
                now.send(signal.SIGCONT)
                while any(map(operator.eq, before, now.progress())) and not ended.wait(0.001):
                    pass
                now.send(signal.SIGSTOP)
        thread = threading.Thread(target=keep_alive)
        thread.start()
        try:
            yield now
        finally:
            ended.set()
            thread.join()
            now.send(signal.SIGCONT)

    def _stopped(self, step, start, nodes):
        """Those who run it, stopped, if all of them live; else nobody, and nobody is stopped."""
        now, done = members(self.folder), self.newest_steps()
        if now.get("state") != "running" or not done or done[-1]["step"] < step:
            return None
        found = self._who_runs(now, start)
        if not found or len(found.agents) != nodes or not found.coordinator:
            return None
        found.send(signal.SIGSTOP)
        states = wait_until(found.states_at_rest, "the workers are stopped")
        again = members(self.folder)
        if states == {"T"} and all(again[key] == now[key] for key in ("generation", "state")):
            self.seen = True
            return found
        found.send(signal.SIGCONT)
        return None

    def _who_runs(self, membership, start):
        """(On a busy machine Slurm may fail to start a job, whatever it may requeue, and try
        again: not counted.)"""
        found = Running("", {}, {}, [])
        for pid in (each["pid"] for each in membership["workers"]):
            environment = lab.environment_of(pid)
            restarts = int(environment.get("SLURM_RESTART_COUNT", 0))
            if not self.is_ours(environment) or restarts < self.early + start:
                return None
            if start == 0 and not self.seen:
                self.early = restarts
            node, agent = environment["SLURMD_NODENAME"], lab.parent_of(pid)
            found.agents[node] = agent
            found.workers.setdefault(node, []).append(pid)
            found.pages.append(pathlib.Path(environment["LOCKSTEP_PROGRESS_PAGE"]))
            if agent == membership["agent_pid"]:
                found.coordinator = node
        return found

    def is_ours(self, environment):
        """Whether a process with this environment belongs to the job, or task of an array."""
        task = (f"{environment.get('SLURM_ARRAY_JOB_ID')}_"
                f"{environment.get('SLURM_ARRAY_TASK_ID')}")
        return self.id in (environment.get("SLURM_JOB_ID"), task)

    def is_told_to_stop(self, tell):
        """Does `tell`, and waits until the agent has heard of it. Requires: the job is held."""
        heard = len(self.events("stop_requested"))
        tell()
        self.wait(lambda: len(self.events("stop_requested")) > heard, "the agent hears of it")

    def goes_on(self, since, what):
        """After a loss at the time `since`: prints when the next step was completed."""
        line = self.wait(lambda: self.newest_steps(since), f"a step after the loss of {what}",
                         pause_s=0.05)[0]
        print(f"       {self.name}: {what} lost, next completed step after "
              f"{line['t'] - since:.2f} s", flush=True)

    def events(self, name):
        return events(self.folder, name)

    def expect(self, state, exit_code=None, restarts=0, or_more=False):
        """Waits for the end of the job, which must be this one, and for its last process. (A node
        that came back may fail Slurm once more.)"""
        def ended():
            info = self.cluster.job(self.id)
            return info if info.get("JobState") in ENDED else None
        info = self.wait(ended, f"the end, {state}", pause_s=0.2)
        check(info["JobState"] == state, f"{info['JobState']}, not {state}\n{self.describe()}")
        check(exit_code is None or info["ExitCode"] == exit_code,
              f"exit {info['ExitCode']}, not {exit_code}\n{self.describe()}")
        found = int(info["Restarts"]) - self.early
        check(found == restarts or or_more and found > restarts,
              f"{found} restarts, not {restarts}\n{self.describe()}")
        self.expect_nothing_left()

    def expect_nothing_left(self):
        def left():
            return [(pid, lab.command_line(pid)[:3]) for pid, environment in lab.processes()
                    if self.is_ours(environment)]
        try:
            self.wait(lambda: not left(), "no process of the job is left", pause_s=0.2)
        except AssertionError as error:
            raise AssertionError(f"{error}\nleft: {left()}") from None

    def must_say(self, *texts):
        for text in texts:
            check(text in self.log(), f"its log does not say: {text}\n{self.describe()}")
