"""Counters of a node's hardware grow, in folders that stand for /sys of each node. By an error that
was corrected nobody moves. By one that was not, the node's workers go to the spare, with the losses
of a run left alone, or the run goes on with a warning."""
import json
import signal

from agents import KEYS, Agents, children_of
from lockstep_run import EXIT_RESUME, Test, check, check_same, metrics, whole_curve

ENDLESS = {"training.steps": 100_000, "lr_scheduler.total_steps": 40}


class Hardware:
    """Memory errors of a node, which were there before."""

    def __init__(self, test, node):
        self.root = test.folder / f"sys_{node}"
        self.folder = self.root / "devices/system/edac/mc/mc0"
        self.folder.mkdir(parents=True)
        self.counts = {"ue_count": 3, "ce_count": 900}
        for name in self.counts:
            self.grow(name)

    def grow(self, name):
        """Its file never is without a number."""
        self.counts[name] += 1
        new = self.folder / f"{name}.new"
        new.write_text(f"{self.counts[name]}\n")
        new.rename(self.folder / name)


def start(test, name, count, nnodes, keys):
    nodes = Agents(test, name, 0, nnodes, ENDLESS | keys)
    hardware = {}
    for number in range(count):
        hardware[f"n{number}"] = Hardware(test, f"{name}_n{number}")
        nodes.add(number, own_environment={
            "LOCKSTEP_SYSFS_ROOT": str(hardware[f"n{number}"].root)})
    return nodes, hardware


def found(nodes, words):
    return [event for event in nodes.events("health") if words in event["reason"]]


def see_corrected_errors(nodes, hardware):
    """Once they are seen the counters were read before: what grows from now on counts."""
    def seen():
        hardware.grow("ce_count")
        return found(nodes, "corrected memory errors of memory controller mc0: ")
    check("uncorrected" not in nodes.await_(seen, "corrected errors")[0]["reason"],
          nodes.events("health"))


def steps_more(nodes, count):
    """The same generation goes on."""
    before = metrics(nodes.folder)[-1]
    after = nodes.await_(lambda: next((line for line in metrics(nodes.folder)
                                       if line["step"] >= before["step"] + count), None),
                         f"{count} more steps")
    check(after["generation"] == before["generation"], (before, after))


def stop(nodes):
    for agent in nodes.agents.values():
        agent.send_signal(signal.SIGTERM)
    nodes.expect(EXIT_RESUME)


def check_losses(test, nodes):
    steps = max(line["step"] for line in metrics(nodes.folder))
    alone = test.train(f"{nodes.folder.name}_alone", 1,
                       KEYS | ENDLESS | {"training.steps": steps})
    check_same(whole_curve(alone, steps), whole_curve(nodes.folder, steps), nodes.folder.name)


def evict(test):
    nodes, hardware = start(test, "evict", 3, "1:2", {
        "launcher.health": "evict", "launcher.spares": 1, "launcher.on_node_loss": "spare"})
    nodes.at(2, 6)
    spare = next(node for node in nodes.agents if not nodes.workers_of(node))
    ready = nodes.await_(lambda: children_of(nodes.agents[spare].pid), "a process of the spare")
    broken = nodes.another()
    see_corrected_errors(nodes, hardware[broken])
    steps_more(nodes, 4)
    check(not nodes.events("node_barred"), nodes.events())
    nodes.after(lambda: hardware[broken].grow("ue_count"), 2, f"an uncorrected error of {broken}")
    barred = nodes.events("node_barred")
    check(len(barred) == 1 and f"node {broken} is barred from running workers: uncorrected "
          "memory errors of memory controller mc0: 1 more" in barred[0]["reason"], nodes.events())
    check(nodes.sizes() == [2], nodes.sizes())
    check(not nodes.workers_of(broken) and nodes.workers_of(spare) == ready, nodes.members())
    check(f"health: {broken}: uncorrected" in test.command("status", nodes.folder), "no status")
    stop(nodes)
    check(not (nodes.folder / "checkpoints/suspect.json").exists(), "checkpoints are good")
    check_losses(test, nodes)


def warn(test):
    nodes, hardware = start(test, "warn", 2, "1:2", {"launcher.health": "warn"})
    nodes.at(2, 6)
    see_corrected_errors(nodes, hardware["n1"])
    hardware["n1"].grow("ue_count")
    nodes.await_(lambda: found(nodes, "node n1: uncorrected memory errors"), "an uncorrected error")
    steps_more(nodes, 4)
    check(not nodes.events("node_barred"), nodes.events())
    health = json.loads(test.command("status", nodes.folder, "--json"))["health"]
    check(health[0] == "n1: uncorrected memory errors of memory controller mc0: 1 more", health)
    stop(nodes)


def one_machine(test):
    nodes, hardware = start(test, "one", 1, "1", {"launcher.health": "evict"})
    nodes.at(1, 6)
    see_corrected_errors(nodes, hardware["n0"])
    hardware["n0"].grow("ue_count")
    nodes.await_(lambda: found(nodes, "it keeps its workers, as the job cannot go on"), "a word")
    steps_more(nodes, 4)
    stop(nodes)


with Test("health") as test:
    with test.case("evict: an error that was not corrected moves the workers to the spare"):
        evict(test)
    with test.case("warn: the run goes on, and status says so"):
        warn(test)
    with test.case("evict on one machine: the run goes on, as nobody could take its place"):
        one_machine(test)
