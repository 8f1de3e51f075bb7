"""A node's link goes down and comes back, under three values of launcher.silence_seconds: for how
long it may be down before the node is lost, and what a node that is really gone then costs. The
tables are those of docs/evidence/FAULTS.md. Where a link is back long before the silence is over
nobody is lost; where it stays down beyond it the others go on."""
import pathlib
import signal
import sys
import time

import hosts

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1] / "multirank"))
from agents import Agents  # noqa: E402
from lockstep_run import EXIT_RESUME, Test, check, metrics, whole_curve  # noqa: E402

# Told to stop when everything was tried.
ENDLESS = {"training.steps": 100_000, "lr_scheduler.total_steps": 100_000,
           "checkpoint.interval": 5, "launcher.max_restarts": 20}
SILENCES_S = (1.5, 5, 15)
DOWN_S = (0.5, 1, 2, 5)
# A lost packet is sent again after 0.2, 0.6, 1.4, 3 and 6.2 s in all: up to three times the outage.
SURELY_KEPT, SURELY_LOST = 0.25, 1.5

LOST_NTH, LOSSY_S = 20, 20


class Job(Agents):
    def __init__(self, test, name, net, silence_s):
        for host in net:
            host.mend()
        super().__init__(test, name, len(net), f"1:{len(net)}",
                         ENDLESS | {"launcher.silence_seconds": silence_s}, net)
        self.at(len(net), 10)

    def host(self, node):
        return next(host for host in self.hosts if host.name == node)

    def end(self):
        self.agents[self.coordinator()].send_signal(signal.SIGTERM)
        self.expect(EXIT_RESUME)
        return whole_curve(self.folder, max(line["step"] for line in metrics(self.folder)))


def longest_pause(folder, since):
    times = [since] + [line["t"] for line in metrics(folder) if line["t"] > since]
    return max(after - before for before, after in zip(times, times[1:]))


def one(test, net, silence_s, down_s):
    job = Job(test, f"silence_{silence_s}_down_{down_s}", net, silence_s)
    node, start = job.another(), time.time()
    job.host(node).cut()
    time.sleep(down_s)
    job.host(node).mend()
    if down_s > SURELY_LOST * silence_s:
        job.await_(lambda: job.events("node_lost"), "the loss of the node")
    mended = time.time()
    job.await_(lambda: metrics(job.folder)[-1]["t"] > mended + 2 * silence_s, "steps", 120)
    lost = [event["reason"] for event in job.events("node_lost")]
    pause = longest_pause(job.folder, start)
    print(f"       silence {silence_s:4} s, link down {down_s:3} s: "
          f"{'lost: ' + lost[0] if lost else 'nobody lost'}, no step for {pause:.2f} s", flush=True)
    check(not lost or down_s > SURELY_KEPT * silence_s, job.events(), job.log())
    check(lost or down_s <= SURELY_LOST * silence_s, job.events(), job.log())
    return job.end()


def loses_packets(test, net, silence_s):
    """Every node loses each 20th packet that comes to it, 5 %, from step 10 on."""
    job = Job(test, f"silence_{silence_s}_loss", net, silence_s)
    start, before = time.time(), metrics(job.folder)[-1]["step"]
    for host in net:
        host.lose_every(LOST_NTH)
    time.sleep(LOSSY_S)
    dropped = sum(host.lost_packets() for host in net)
    steps, pause = metrics(job.folder)[-1]["step"] - before, longest_pause(job.folder, start)
    for host in net:
        host.lose_every(0)
    lost = [event["reason"] for event in job.events("node_lost")]
    print(f"       silence {silence_s:4} s, 5 % loss for {LOSSY_S} s: {dropped} packets, "
          f"{steps} steps, nodes lost: {lost}, no step for {pause:.2f} s", flush=True)
    check(dropped > 0, "no packet was lost")
    return job.end()


def gone(test, net, silence_s):
    job = Job(test, f"silence_{silence_s}_gone", net, silence_s)
    job.after(job.host(job.another()).cut, 2, f"silence {silence_s} s, link down for good")
    return job.end()


hosts.enter()
with Test("links") as test:
    net = hosts.hosts(3)
    for silence_s in SILENCES_S:
        for down_s in DOWN_S:
            with test.case(f"silence of {silence_s} s, link down for {down_s} s"):
                one(test, net, silence_s, down_s)
        with test.case(f"silence of {silence_s} s, a node that is gone"):
            gone(test, net, silence_s)
        with test.case(f"silence of {silence_s} s, 5 % of packets lost"):
            loses_packets(test, net, silence_s)
