"""Jobs of the lab: submitting them as a user does, catching them at a step, seeing how they end."""
import dataclasses
import json
import os
import re
import signal
import threading
import time

import lab
from lockstep_run import (TINY, check, events, flags, metrics, program, send_if_there, tail,
                          wait_until)

# Long enough to be caught on the way, and short on a machine that is busy with many cases.
STEPS = 200
KEYS = TINY | {"training.steps": STEPS, "checkpoint.interval": 20}
END_TIMEOUT_S = 240  # on a machine that is busy with the other cases
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


def submit(cluster, test, name, words=(), keys=None, script=None, folder=None, nproc=2):
    """A job by `lockstep submit`; with `script` by sbatch, and $LOCKSTEP and $RUN_WORDS are set."""
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
    environment = job_environment(cluster, test) | {"RUN_WORDS": " ".join(words_of_run)}
    printed = lab.must(*command, environment=environment, cwd=home)
    return Job(name, submitted_id(printed), folder, home)


@dataclasses.dataclass
class Running:
    """Who runs a job at some moment: process ids, and Slurm's names of nodes."""
    coordinator: str  # its node
    agents: dict      # by node
    workers: dict     # likewise, a list

    def all_workers(self):
        return [pid for pids in self.workers.values() for pid in pids]

    def freeze(self, node):
        """The node falls silent: its connections stand, and nobody answers."""
        for pid in (self.agents[node], *self.workers[node]):
            os.kill(pid, signal.SIGSTOP)

    def wake(self, node):
        for pid in (self.agents[node], *self.workers[node]):
            os.kill(pid, signal.SIGCONT)


class Job:
    """A job that was submitted, its run folder, and the folder of its output NAME-*.out."""

    def __init__(self, name, job_id, folder, home):
        self.name, self.id, self.folder, self.home = name, job_id, folder, home
        self.seen, self.early = False, 0  # restarts before it was seen to run

    def info(self):
        """What scontrol tells of the job; nothing while slurmctld does not answer."""
        status, printed = lab.run("scontrol", "-o", "show", "job", self.id)
        return dict(word.split("=", 1) for word in printed.split() if "=" in word) if not status \
            else {}

    def log(self):
        return "".join(path.read_text(errors="replace")
                       for path in sorted(self.home.glob(f"{self.name}-[0-9]*.out")))

    def describe(self):
        told = "\n".join(line for line in self.log().splitlines() if not line.startswith("step: "))
        return (f"{self.name}, job {self.id}: {self.info()}\n{len(metrics(self.folder))} steps\n"
                f"{tail(told, 40)}")

    def wait(self, condition, what, timeout_s=END_TIMEOUT_S, pause_s=0.1):
        try:
            return wait_until(condition, what, timeout_s, pause_s)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.describe()}") from None

    def membership(self):
        try:
            return json.loads((self.folder / "workers.json").read_text())
        except (FileNotFoundError, json.JSONDecodeError):
            return {"workers": [], "state": "", "generation": -1, "agent_pid": -1}

    def newest_steps(self, since=0):
        """Those of the launcher's newest generation, if it began after `since`."""
        starts = [event["t"] for event in self.events("generation_start")]
        return [line for line in metrics(self.folder)
                if starts and line["t"] > starts[-1] > since]

    def at(self, step, start=0, nodes=1):
        """Who runs it, once a generation on so many nodes has done `step` after `start` restarts
        of the job, or more. (On a busy machine Slurm may fail to start a job, whatever it may
        requeue, and try again: not counted.)"""
        def there():
            now, done = self.membership(), self.newest_steps()
            if now["state"] != "running" or not done or done[-1]["step"] < step:
                return None
            found = Running("", {}, {})
            for pid in (each["pid"] for each in now["workers"]):
                environment = lab.environment_of(pid)
                restarts = int(environment.get("SLURM_RESTART_COUNT", 0))
                if environment.get("SLURM_JOB_ID") != self.id or restarts < self.early + start:
                    return None
                if start == 0 and not self.seen:
                    self.early = restarts
                node, agent = environment["SLURMD_NODENAME"], lab.parent_of(pid)
                found.agents[node] = agent
                found.workers.setdefault(node, []).append(pid)
                if agent == now["agent_pid"]:
                    found.coordinator = node
            if len(found.agents) != nodes or not found.coordinator:
                return None
            self.seen = True
            return found
        return self.wait(there, f"step {step} on {nodes} nodes", pause_s=0.01)

    def goes_on(self, since, what, limit_s=30):
        """After a loss at the time `since`: prints when the next step was completed."""
        line = self.wait(lambda: self.newest_steps(since), f"a step after the loss of {what}",
                         limit_s, 0.05)[0]
        print(f"       {self.name}: {what} lost, next completed step after "
              f"{line['t'] - since:.2f} s", flush=True)

    def thaw_when_stopped(self, pids):
        """Freezes workers: the job waits, at next to no cost, for what Slurm does next; they go on
        when the agent has heard of it. A step now and then, or they would count as stopped."""
        def send(what):
            for pid in pids:
                send_if_there(pid, what)

        def heard():
            return self.events("stop_requested")

        def thaw():
            try:
                self.wait(lambda: heard() or self.step_between(send), "the agent hears of it", 120,
                          2)
            finally:
                send(signal.SIGCONT)
        send(signal.SIGSTOP)
        thread = threading.Thread(target=thaw)
        thread.start()
        return thread

    def step_between(self, send):
        done = len(metrics(self.folder))
        send(signal.SIGCONT)
        deadline = time.monotonic() + 2
        while len(metrics(self.folder)) == done and time.monotonic() < deadline:
            time.sleep(0.01)
        send(signal.SIGSTOP)

    def events(self, name):
        return events(self.folder, name)

    def expect(self, state, exit_code=None, restarts=0, or_more=False):
        """Waits for the end of the job, which must be this one, and for its last process. (A node
        that came back may fail Slurm once more.)"""
        def ended():
            info = self.info()
            return info if info.get("JobState") in ENDED else None
        info = self.wait(ended, f"the end, {state}")
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
                    if environment.get("SLURM_JOB_ID") == self.id]
        self.wait(lambda: not left(), f"no process of the job left: {left()}", 20)

    def must_say(self, *texts):
        for text in texts:
            check(text in self.log(), f"its log does not say: {text}\n{self.describe()}")
