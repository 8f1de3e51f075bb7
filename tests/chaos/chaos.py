"""`lockstep launch` on three nodes that are network namespaces (hosts.py): workers, agents and
whole nodes are killed, stopped and woken, and cut off the network, which loses packets, too. Each
time the others go on, who was away comes back as a spare, and the losses are those of a run left
alone."""
import pathlib
import signal
import sys
import time

import hosts
import lab

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1] / "multirank"))
from agents import KEYS, Agents  # noqa: E402
from lockstep_run import (EXIT_RESUME, Page, Test, check, check_same,  # noqa: E402
                          committed, metrics, send, wait_until, whole_curve)

# Told to stop when everything was tried.
ENDLESS = {"training.steps": 100_000, "lr_scheduler.total_steps": 100_000,
           "checkpoint.interval": 5, "launcher.max_restarts": 20}
LOSSES = 50            # packets that each node loses while nobody may be evicted
REPORTED_S = 5         # ten times two reports, the second of which says that it has been answered


def works(pid):
    """Whether this worker lives and has not let go of its generation."""
    words = lab.environment_of(pid)
    return bool(words) and not Page(pathlib.Path(words["LOCKSTEP_PROGRESS_PAGE"])).parked()


def let_go(workers):
    """Waits for it: 3 s without a coordinator (control/timing.h), at once for one that wakes."""
    wait_until(lambda: not any(map(works, workers)), f"workers {workers} let go")


def send_all(pids, what):
    for pid in pids:
        send(pid, what)


class Job(Agents):
    """On all hosts."""

    def __init__(self, test, name, net, hang_seconds=60):
        for host in net:
            host.mend()
            host.lose_every(0)
        super().__init__(test, name, len(net), f"1:{len(net)}",
                         ENDLESS | {"launcher.hang_seconds": hang_seconds}, net)
        self.at(len(net), 10)

    def host(self, node):
        return next(host for host in self.hosts if host.name == node)

    def recovers(self, disturb, world_size, what):
        """A recovery, and then progress: three in a row without any end the run."""
        before = committed(self.folder)[:1]
        self.after(disturb, world_size, what)
        self.await_(lambda: committed(self.folder)[:1] != before, "a new checkpoint")

    def kill_a_worker(self, world_size):
        node = self.another()
        self.recovers(lambda: send_all(self.workers_of(node), signal.SIGKILL), world_size,
                      f"SIGKILL of the worker of {node}")

    def cut(self, node, world_size, what):
        """Cuts it off; its workers must let go soon. Mends the network, and it is a spare."""
        workers = self.workers_of(node)

        def cut_and_watch():
            start = time.monotonic()
            self.host(node).cut()
            let_go(workers)
            seconds = time.monotonic() - start
            print(f"       {node}: its worker let go {seconds:.2f} s after its link went down")
        self.recovers(cut_and_watch, world_size, what)
        self.host(node).mend()
        self.await_spare(node)

    def await_spare(self, node):
        self.await_(lambda: any(each["name"] == node and each["first_rank"] < 0
                                for each in self.members()["nodes"]), f"{node} a spare")
        time.sleep(REPORTED_S)

    def end(self):
        """Its curve, all of it; the end may be in the middle of what is redone."""
        self.agents[self.coordinator()].send_signal(signal.SIGTERM)  # a spare would leave alone
        self.expect(EXIT_RESUME)
        for host in self.hosts:
            check(not host.shared_memory(), host.name, host.shared_memory())
        steps = max(line["step"] for line in metrics(self.folder))
        return whole_curve(self.folder, steps)


def a_worker_and_a_silent_node(test, net):
    job = Job(test, "silent_node", net)
    job.kill_a_worker(3)
    lost = job.another()
    job.cut(lost, 2, f"the link of {lost} down")
    job.kill_a_worker(3)
    packets_are_lost(job, net)
    victim = job.another()
    job.recovers(lambda: job.kill_agent(victim), 2, f"SIGKILL of the agent {victim}")
    return job.end()


def packets_are_lost(job, net):
    evicted, first = len(job.events("node_lost")), metrics(job.folder)[-1]["step"]
    starts = len(job.events("generation_start"))
    for host in net:
        host.lose_every(20)
    job.await_(lambda: min(host.lost_packets() for host in net) >= LOSSES and
               metrics(job.folder)[-1]["step"] >= first + LOSSES, "losses and steps", 300)
    lost = [host.lost_packets() for host in net]
    for host in net:
        host.lose_every(0)
    done = metrics(job.folder)[-1]["step"] - first
    print(f"       every 20th packet lost: {lost} packets, {done} steps")
    check(len(job.events("node_lost")) == evicted, job.events("node_lost"))
    check(len(job.events("generation_start")) == starts, job.log())


def coordinators(test, net):
    job = Job(test, "coordinators", net)
    lost = job.coordinator()
    job.cut(lost, 2, f"the link of the coordinator {lost} down")
    stopped = job.another()
    pids = [job.agents[stopped].pid, *job.workers_of(stopped)]
    job.recovers(lambda: send_all(pids, signal.SIGSTOP), 2,
                 f"SIGSTOP of agent and worker of {stopped}")
    send_all(pids, signal.SIGCONT)
    let_go(pids[1:])
    job.await_spare(stopped)
    lost = job.coordinator()
    # Its one successor takes the spare along when that one finds it in time.
    job.recovers(lambda: job.kill_agent(lost), None, f"SIGKILL of the coordinator {lost}")
    last = job.workers_of(job.coordinator())
    job.recovers(lambda: send_all(last, signal.SIGKILL), 2, "SIGKILL of its successor's worker")
    split(job)
    return job.end()


def split(job):
    """Two nodes that cannot reach each other: one of them goes on alone, whichever it is."""
    one = job.coordinator()
    both = {node: job.workers_of(node) for node in job.agents}
    job.recovers(job.host(one).cut, 1, f"the link of {one} down, one of two")
    other = next(node for node in both if node != job.coordinator())
    let_go(both[other])
    job.host(one).mend()
    job.await_spare(other)


def stopped_and_woken(test, net):
    job = Job(test, "stopped", net, hang_seconds=6)
    node = job.another()
    worker, = job.workers_of(node)
    job.recovers(lambda: send(worker, signal.SIGSTOP), 3, f"SIGSTOP of the worker of {node}")
    check("SIGSTOP" in job.events("failure_detected")[-1]["reason"], job.events())
    check(not works(worker), worker)
    lost = job.coordinator()
    agent, own = job.agents[lost].pid, job.workers_of(lost)
    job.recovers(lambda: send(agent, signal.SIGSTOP), 2,
                 f"SIGSTOP of the agent of the coordinator {lost}")
    send(agent, signal.SIGCONT)
    let_go(own)
    job.await_spare(lost)
    return job.end()


def undisturbed(test, curves):
    """As many steps as the longest of `curves`, left alone."""
    steps = max(map(max, curves))
    folder = test.folder / "undisturbed"
    test.ranks(folder, 3, KEYS | ENDLESS | {"training.steps": steps}).expect(0, 600)
    return whole_curve(folder, steps)


hosts.enter()
with Test("chaos") as test:
    net = hosts.hosts(3)
    curves = {}
    for case in (a_worker_and_a_silent_node, coordinators, stopped_and_woken):
        with test.case(case.__name__.replace("_", " ")):
            curves[case.__name__] = case(test, net)
    with test.case("all losses are those of an undisturbed run"):
        reference = undisturbed(test, curves.values())
        for name, found in curves.items():
            check_same({step: reference[step] for step in found}, found, name)
            print(f"       {name}: {len(found)} steps")
