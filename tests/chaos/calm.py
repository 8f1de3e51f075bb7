"""Ten minutes (CALM_MINUTES) of training on three nodes with more workers than cores, saving all
the time: nobody may be evicted, and nothing restarted."""
import os
import pathlib
import signal
import sys
import time

import hosts

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1] / "multirank"))
from agents import Agents  # noqa: E402
from lockstep_run import EXIT_RESUME, Test, check, committed, metrics  # noqa: E402

MINUTES = float(os.environ.get("CALM_MINUTES", 10))
NODES = 3
WORKERS = max(2, 2 * os.cpu_count() // NODES)  # of a node
SAVES = {"training.steps": 10_000_000, "training.slots": NODES * WORKERS,
         "checkpoint.interval": 5, "launcher.nproc_per_node": WORKERS}


def calm(test, net):
    job = Agents(test, "calm", NODES, str(NODES), SAVES, net)
    job.at(NODES * WORKERS, 10)
    end = time.monotonic() + 60 * MINUTES
    job.await_(lambda: time.monotonic() > end, "the end", 60 * MINUTES + 60)
    done, saved = len(metrics(job.folder)), committed(job.folder)[0]
    job.agents["n1"].send_signal(signal.SIGTERM)
    job.expect(EXIT_RESUME)
    bad = [event for event in job.events() if event["event"] in ("node_lost", "failure_detected")]
    print(f"       {MINUTES} minutes, {NODES} x {WORKERS} workers on {os.cpu_count()} cores: "
          f"{done} steps, newest checkpoint {saved}, {len(bad)} evictions and restarts")
    check(not bad, bad)
    check(len(job.events("generation_start")) == 1, job.events())


hosts.enter()
with Test("calm") as test:
    with test.case("nobody is taken for lost"):
        calm(test, hosts.hosts(NODES))
