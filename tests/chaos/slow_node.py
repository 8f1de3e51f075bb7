"""A worker computes at 60 % of its speed (a quota on its processor time): the spare takes the place
of its node, SLOW_TIMES (20) times of as many, and the losses are those of an undisturbed job. Then
nobody is replaced in SLOW_CALM_MINUTES (10) of a job whose ranks are slowed for a while in turns.

It needs two cores that nothing else wants, and with SLOW_TIMES=0 and SLOW_CALM_SHARE=0.35 in each
of two cores so much that nothing else wants (`nice`)."""
import itertools
import os
import pathlib
import signal
import sys
import time

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1] / "multirank"))
from agents import Agents  # noqa: E402
from lockstep_run import (EXIT_RESUME, Test, check, check_same, metrics, wait_until,  # noqa: E402
                          whole_curve)

TIMES = int(os.environ.get("SLOW_TIMES", 20))
CALM_MINUTES = float(os.environ.get("SLOW_CALM_MINUTES", 10))
CALM_SHARE = float(os.environ.get("SLOW_CALM_SHARE", 0)) or None  # of a core, for each rank
SPEED, PERIOD_US = 0.6, 5000
SECONDS = 5  # launcher.straggler_seconds
KEYS = {"training.steps": 100_000, "lr_scheduler.total_steps": 100_000, "training.slots": 4,
        "training.local_batch_size": 16,  # a rank computes nearly all the time: a quota slows it
        "checkpoint.interval": 20, "launcher.spares": 1, "launcher.on_node_loss": "spare",
        "launcher.straggler": "evict", "launcher.straggler_seconds": SECONDS,
        "launcher.straggler_factor": 1.3}  # 60 % of the speed is 1.67 times the time


class Quota:
    """A control group in which processes get so much of a core, of either version of cgroups."""

    def __init__(self, name):
        first = pathlib.Path("/sys/fs/cgroup/cpu")
        self.old = first.is_dir()
        self.folder = (first if self.old else pathlib.Path("/sys/fs/cgroup")) / name
        try:
            self.folder.mkdir(exist_ok=True)
            self.allow(None)
        except OSError as error:
            print(f"no control group of one's own can be made: {error}")
            sys.exit(77)

    def allow(self, cores):
        """None: as many as there are."""
        quota = int(cores * PERIOD_US) if cores else -1 if self.old else "max"
        if self.old:
            (self.folder / "cpu.cfs_period_us").write_text(str(PERIOD_US))
            (self.folder / "cpu.cfs_quota_us").write_text(str(quota))
        else:
            (self.folder / "cpu.max").write_text(f"{quota} {PERIOD_US}")

    def take(self, pid):
        (self.folder / "cgroup.procs").write_text(str(pid))

    def remove(self):
        """The kernel lets go of processes a moment after they have ended."""
        def removed():
            try:
                self.folder.rmdir()
                return True
            except OSError:
                return False
        wait_until(removed, f"{self.folder} to be empty")


def job_of(test, name):
    job = Agents(test, name, 3, "1:2", KEYS)
    job.at(2, 10)
    return job


def end(job):
    job.agents[job.coordinator()].send_signal(signal.SIGTERM)
    job.expect(EXIT_RESUME)
    return whole_curve(job.folder, max(line["step"] for line in metrics(job.folder)))


def replaced(test, number):
    """Seconds until the spare's first step; and the job's losses."""
    quota, job = Quota(f"lockstep_slow_{os.getpid()}"), job_of(test, f"slow_{number}")
    node = job.coordinator() if number % 2 else job.another()
    quota.take(job.workers_of(node)[0])
    seconds = job.after(lambda: quota.allow(SPEED), 2, f"{node} is slow")
    [event] = job.events("node_replaced")
    print(f"       {event['reason']}", flush=True)
    check(f"node {node}:" in event["reason"], event)
    check(not job.workers_of(node), job.members())
    curve = end(job)
    quota.remove()
    return seconds, curve


def calm(test):
    """Each rank in its turn is slow for half of launcher.straggler_seconds, and then nobody is."""
    quotas = [Quota(f"lockstep_calm_{os.getpid()}_{number}") for number in range(2)]
    job = job_of(test, "calm")
    for quota, worker in zip(quotas, job.members()["workers"]):
        quota.allow(CALM_SHARE)
        quota.take(worker["pid"])
    finish = time.monotonic() + 60 * CALM_MINUTES
    for quota in itertools.cycle(quotas):
        quota.allow(SPEED * (CALM_SHARE or 1))
        job.await_(lambda until=time.monotonic() + SECONDS / 2: time.monotonic() > until, "a turn")
        quota.allow(CALM_SHARE)
        job.await_(lambda until=time.monotonic() + SECONDS: time.monotonic() > until, "a rest")
        if time.monotonic() > finish:
            break
    steps = metrics(job.folder)[-1]["step"]
    print(f"       {CALM_MINUTES} minutes, {steps} steps", flush=True)
    check(not job.events("node_replaced") and not job.events("straggler"), job.events())
    end(job)
    for quota in quotas:
        quota.remove()


with Test("slow_node") as test:
    with test.case("an undisturbed job"):
        job = job_of(test, "reference")
        job.at(2, 100)
        reference = end(job)
    found = []
    for number in range(TIMES):
        with test.case(f"a spare takes the place of a slow node, {number + 1} of {TIMES}"):
            seconds, curve = replaced(test, number)
            found.append(seconds)
            both = reference.keys() & curve.keys()
            check_same({step: reference[step] for step in both},
                       {step: curve[step] for step in both}, "after the change")
    print(f"       {len(found)} of {TIMES}, after {min(found, default=0):.1f} to "
          f"{max(found, default=0):.1f} s, of launcher.straggler_seconds = {SECONDS}", flush=True)
    with test.case("nobody is replaced who is slow for a while"):
        calm(test)
