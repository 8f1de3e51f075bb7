"""`lockstep launch` on three nodes that are network namespaces (hosts.py): workers, agents and
whole nodes are killed, stopped and woken, and cut off the network, which loses packets, too. Each
time the others go on, who was away comes back as a spare, and the losses are those of a run left
alone."""
import os
import pathlib
import signal
import sys
import time

import hosts
import lab

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1] / "multirank"))
from agents import KEYS, Agents  # noqa: E402
from lockstep_run import (EXIT_RESUME, Page, Test, check, check_same,  # noqa: E402
                          committed, curve, metrics, wait_until, whole_curve)

# Told to stop when everything was tried.
ENDLESS = {"training.steps": 100_000, "checkpoint.interval": 5, "launcher.max_restarts": 20}
FENCED_S = 3.0 + 1.5   # without a coordinator workers are stopped after 3 s (control/machine.h)
RECOVERED_S = 15       # of a machine whose cores others use, too; targets are a fifth of it
CALM_S = 10
REPORTED_S = 0.5       # two reports of a node, the second of which says that it has been answered


def works(pid):
    """Whether this worker lives and has not let go of its generation."""
    words = lab.environment_of(pid)
    return bool(words) and not Page(pathlib.Path(words["LOCKSTEP_PROGRESS_PAGE"])).parked()


def send(pids, what):
    for pid in pids:
        os.kill(pid, what)


class Job(Agents):
    """On all hosts."""

    def __init__(self, test, name, net, hang_seconds=60):
        for host in net:
            host.mend()
            host.lose(0)
        super().__init__(test, name, len(net), f"1:{len(net)}",
                         ENDLESS | {"launcher.hang_seconds": hang_seconds}, net)
        self.at(len(net), 10)

    def host(self, node):
        return next(host for host in self.hosts if host.name == node)

    def recovers(self, disturb, world_size, what):
        """A recovery, and then progress: three in a row without any end the run."""
        before = committed(self.folder)[:1]
        seconds = self.after(disturb, world_size, what)
        self.await_(lambda: committed(self.folder)[:1] != before, "a new checkpoint")
        check(seconds < RECOVERED_S, f"{what}: {seconds:.1f} s\n{self.log()}")

    def kill_a_worker(self, world_size):
        node = self.another()
        self.recovers(lambda: send(self.workers_of(node), signal.SIGKILL), world_size,
                      f"SIGKILL of the worker of {node}")

    def cut(self, node, world_size, what):
        """Cuts it off; its workers must let go soon. Mends the network, and it is a spare."""
        workers = self.workers_of(node)

        def cut_and_watch():
            start = time.monotonic()
            self.host(node).cut()
            wait_until(lambda: not any(map(works, workers)), f"{node} is fenced", 20)
            seconds = time.monotonic() - start
            print(f"       {node}: its worker let go {seconds:.2f} s after its link went down")
            check(seconds < FENCED_S, f"{seconds:.1f} s\n{self.log()}")
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
        host.lose(5)
    time.sleep(CALM_S)
    lost = [host.lost_packets() for host in net]
    for host in net:
        host.lose(0)
    done = metrics(job.folder)[-1]["step"] - first
    print(f"       5 % of the packets lost for {CALM_S} s: {lost} packets, {done} steps")
    check(min(lost) > 0 and done > 0, lost, done)
    check(len(job.events("node_lost")) == evicted, job.events("node_lost"))
    check(len(job.events("generation_start")) == starts, job.log())


def coordinators(test, net):
    job = Job(test, "coordinators", net)
    lost = job.coordinator()
    job.cut(lost, 2, f"the link of the coordinator {lost} down")
    stopped = job.another()
    pids = [job.agents[stopped].pid, *job.workers_of(stopped)]
    job.recovers(lambda: send(pids, signal.SIGSTOP), 2, f"SIGSTOP of agent and worker of {stopped}")
    send(pids, signal.SIGCONT)
    wait_until(lambda: not any(map(works, pids[1:])), "the woken worker lets go", FENCED_S)
    job.await_spare(stopped)
    lost = job.coordinator()
    # Its one successor takes the spare along when that one finds it in time.
    job.recovers(lambda: job.kill_agent(lost), None, f"SIGKILL of the coordinator {lost}")
    last = job.workers_of(job.coordinator())
    job.recovers(lambda: send(last, signal.SIGKILL), 2, "SIGKILL of its successor's worker")
    split(job)
    return job.end()


def split(job):
    """Two nodes that cannot reach each other: one of them goes on alone, whichever it is."""
    one = job.coordinator()
    both = {node: job.workers_of(node) for node in job.agents}
    job.recovers(job.host(one).cut, 1, f"the link of {one} down, one of two")
    other = next(node for node in both if node != job.coordinator())
    wait_until(lambda: not any(map(works, both[other])), f"{other} is fenced", FENCED_S)
    job.host(one).mend()
    job.await_spare(other)


def stopped_and_woken(test, net):
    job = Job(test, "stopped", net, hang_seconds=6)
    node = job.another()
    worker, = job.workers_of(node)
    job.recovers(lambda: send([worker], signal.SIGSTOP), 3, f"SIGSTOP of the worker of {node}")
    check("SIGSTOP" in job.events("failure_detected")[-1]["reason"], job.events())
    check(not works(worker), worker)
    lost = job.coordinator()
    agent, own = job.agents[lost].pid, job.workers_of(lost)
    job.recovers(lambda: send([agent], signal.SIGSTOP), 2,
                 f"SIGSTOP of the agent of the coordinator {lost}")
    send([agent], signal.SIGCONT)
    wait_until(lambda: not any(map(works, own)), "its worker lets go", FENCED_S)
    job.await_spare(lost)
    return job.end()


def undisturbed(test, curves):
    """As many steps as the longest of `curves`, left alone."""
    steps = max(map(max, curves))
    folder = test.folder / "undisturbed"
    ranks = test.ranks(folder, 3, KEYS | ENDLESS)
    wait_until(lambda: curve(folder).get(steps), f"{steps} steps\n{ranks.log()}", 120, 0.5)
    ranks.kill()
    return curve(folder)


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
