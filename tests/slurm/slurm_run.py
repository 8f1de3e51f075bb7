"""Jobs of the lab: submitting them as a user does, catching them at a step, seeing how they end."""
import json
import os
import pathlib
import re
import signal
import threading

import lab
from lab import wait_until
from lockstep_run import TINY, Page, check, flags, program, tail

# Long enough to be caught on the way, and short on a machine that is busy with many cases.
STEPS = 120
KEYS = TINY | {"training.steps": STEPS, "checkpoint.interval": 20}
END_TIMEOUT_S = 150  # on a machine that is busy with the other cases
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


def submit(cluster, test, name, words=(), keys=None, script=None, folder=None):
    """A job by `lockstep submit`; with `script` by sbatch, and $LOCKSTEP and $RUN_WORDS are set."""
    home = test.folder / "jobs"
    home.mkdir(exist_ok=True)
    folder = folder or test.folder / "runs" / name
    words_of_run = run_words(test, folder, keys)
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


class Job:
    """A job that was submitted, its run folder, and the folder of its output NAME-*.out."""

    def __init__(self, name, job_id, folder, home):
        self.name, self.id, self.folder, self.home = name, job_id, folder, home

    def info(self):
        """What scontrol tells of the job; nothing while slurmctld does not answer."""
        status, printed = lab.run("scontrol", "-o", "show", "job", self.id)
        return dict(word.split("=", 1) for word in printed.split() if "=" in word) if not status \
            else {}

    def log(self):
        return "".join(path.read_text(errors="replace")
                       for path in sorted(self.home.glob(f"{self.name}-[0-9]*.out")))

    def describe(self):
        return f"{self.name}, job {self.id}: {self.info()}\n{tail(self.log(), 40)}"

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

    def workers_at(self, step, start=0):
        """Once rank 0 computes `step` or a later one after `start` restarts of the job, or more:
        its node, {rank: pid}, and the agent's pid."""
        def there():
            now = self.membership()
            if now["state"] != "running" or not now["workers"]:
                return None
            at, phase, _, _ = Page(pathlib.Path(now["workers"][0]["progress_page"])).read()
            if phase not in ("step", "update") or at < step:
                return None
            environment = lab.environment_of(now["workers"][0]["pid"])
            if environment.get("SLURM_JOB_ID") != self.id or \
                    int(environment.get("SLURM_RESTART_COUNT", 0)) < start:
                return None
            return environment["SLURMD_NODENAME"], {each["rank"]: each["pid"]
                                                    for each in now["workers"]}, now["agent_pid"]
        return self.wait(there, f"a worker at step {step}", pause_s=0.01)

    def freeze_at(self, step):
        """Stops the workers there: the job waits, at no cost, for what Slurm does next; they go on
        when the agent has heard of it."""
        _, workers, _ = self.workers_at(step)
        for pid in workers.values():
            os.kill(pid, signal.SIGSTOP)

        def thaw():
            self.wait(lambda: self.events("stop_requested"), "the agent hears of it", 90)
            for pid in workers.values():
                os.kill(pid, signal.SIGCONT)
        thread = threading.Thread(target=thaw)
        thread.start()
        return thread

    def events(self, name):
        path = self.folder / "events.jsonl"
        lines = path.read_text().splitlines() if path.exists() else []
        return [event for event in map(json.loads, lines) if event["event"] == name]

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
        check(int(info["Restarts"]) == restarts or or_more and int(info["Restarts"]) > restarts,
              f"{info['Restarts']} restarts, not {restarts}\n{self.describe()}")
        self.expect_nothing_left()

    def expect_nothing_left(self):
        def left():
            return [(pid, lab.command_line(pid)[:3]) for pid, environment in lab.processes()
                    if environment.get("SLURM_JOB_ID") == self.id]
        self.wait(lambda: not left(), f"no process of the job left: {left()}", 20)

    def must_say(self, *texts):
        for text in texts:
            check(text in self.log(), f"its log does not say: {text}\n{self.describe()}")
