"""A run of two nodes takes in a third one by a planned change: no step is computed again, state
comes from memory, no restart is counted, and the losses are those of a run left alone."""
import re
import signal

from agents import KEYS, Agents
from lockstep_run import EXIT_RESUME, Test, check, check_same, metrics, whole_curve

# It goes on until it is told to stop. Of 6 slots three ranks compute two rounds, two ranks three.
GROWING = {"training.slots": 6, "training.steps": 100_000, "lr_scheduler.total_steps": 200,
           "checkpoint.interval": 1000, "checkpoint.memory_interval": 1000,
           "launcher.grow": "auto", "launcher.grow_after_seconds": 2}


def check_planned(nodes, generation):
    """That `generation` followed a planned change, from memory."""
    # A rank logs its step before the coordinator has seen it.
    changed = nodes.await_(lambda: [each for each in nodes.events("changed")
                                    if each["generation"] == generation], "the planned change")
    check(len(changed) == 1 and changed[0]["redone_steps"] == 0, nodes.events())
    print(f"       {changed[0]['reason']}")
    agreed = [each["step"] for each in nodes.events("change_agreed")
              if each["generation"] == generation - 1]
    check(agreed == [changed[0]["step"] - 1], nodes.events())
    log = nodes.log() + "".join(path.read_text(errors="replace")
                                for path in (nodes.folder / "logs").glob("rank_*.log"))
    check(re.search(rf"step {agreed[0]}\b.*\bmemory\b", log), log)


def check_nothing_again(nodes):
    steps = [line["step"] for line in metrics(nodes.folder)]
    check(steps == list(range(1, len(steps) + 1)), steps)
    check(not nodes.events("failure_detected") and not nodes.events("recovered"), nodes.events())


with Test("grow") as test:
    with test.case("a third node joins"):
        nodes = Agents(test, "grows", 2, "1:3", GROWING | {"launcher.last_call_seconds": 1})
        nodes.at(2, 5)
        nodes.add(2)
        nodes.at(3, 8)
        check_planned(nodes, 2)
        nodes.agents["n1"].send_signal(signal.SIGTERM)
        nodes.expect(EXIT_RESUME)
        check(nodes.sizes() == [2, 3], nodes.sizes())
        check_nothing_again(nodes)
        steps = metrics(nodes.folder)[-1]["step"]
        alone = test.train("alone", 1, KEYS | GROWING | {"training.steps": steps})
        check_same(whole_curve(alone, steps), whole_curve(nodes.folder, steps), "a node joins")
