"""`lockstep launch` on several nodes, here three agents on the loopback: a worker, an agent and the
coordinator are killed, in turn, and of one that trains and a spare the one that trains; the others
go on, and the losses are those of a run left alone."""
import os
import signal

from agents import KEYS, Agents
from lockstep_run import EXIT_RESUME, Test, check, check_same, whole_curve

STEPS = {"training.steps": 40}


def worker_then_coordinator(test, reference):
    nodes = Agents(test, "worker_coordinator", 3, "1:3", STEPS)
    victim = nodes.at(3, 6)["workers"][1]
    nodes.after(lambda: os.kill(victim["pid"], signal.SIGKILL), 3,
                f"SIGKILL of the worker of {victim['node']}")
    nodes.at(3, 14)
    lost = nodes.coordinator()
    nodes.after(lambda: nodes.kill_agent(lost), 2, f"SIGKILL of the coordinator {lost}")
    nodes.expect(0)
    check_same(reference, whole_curve(nodes.folder, STEPS["training.steps"]),
               "worker and coordinator killed")
    check(nodes.sizes() == [3, 2], nodes.sizes())
    recovered = nodes.events("recovered")
    check(len(recovered) == 2, nodes.events())
    for each in recovered:
        print(f"       {each['reason']}")
        check(all(word in each["reason"] for word in ("detect", "agree", "respawn", "restore")),
              each)


def agent_then_coordinator(test, reference):
    nodes = Agents(test, "agent_coordinator", 3, "1:3", STEPS)
    nodes.at(3, 6)
    victim = nodes.another()
    nodes.after(lambda: nodes.kill_agent(victim), 2, f"SIGKILL of the agent {victim}")
    nodes.at(2, 16)
    lost = nodes.coordinator()
    nodes.after(lambda: nodes.kill_agent(lost), 1, f"SIGKILL of the coordinator {lost}, one of two")
    nodes.expect(0)
    check_same(reference, whole_curve(nodes.folder, STEPS["training.steps"]),
               "agent and coordinator killed")
    check(nodes.sizes() == [3, 2, 1], nodes.sizes())


def stopped_at_any_node(test, reference):
    nodes = Agents(test, "stopped", 2, "2", STEPS)
    nodes.at(2, 6)
    nodes.agents["n1"].send_signal(signal.SIGTERM)
    nodes.expect(EXIT_RESUME)
    Agents(test, "stopped", 1, "1", STEPS | {"launcher.rdzv_endpoint": f"file:{test.folder}/meet"}
           ).expect(0)
    check_same(reference, whole_curve(nodes.folder, STEPS["training.steps"]),
               "stopped and started again")


def the_only_one_leaves_a_spare(test, reference):
    nodes = Agents(test, "only_one", 1, "1:2", STEPS | {"launcher.last_call_seconds": 2})
    worker = nodes.at(1, 6)["workers"][0]
    os.kill(worker["pid"], signal.SIGSTOP)
    nodes.add(1)
    nodes.await_(lambda: any("n1" in each["reason"] for each in nodes.events("node_joined")),
                 "the spare")
    nodes.kill_agent("n0")
    nodes.expect(0, 90)  # nobody for 20 s, no beat for 6.5 s, the last call for others
    check_same(reference, whole_curve(nodes.folder, STEPS["training.steps"]), "started over")
    check("starts over" in nodes.logs["n1"].read_text(), nodes.log())


with Test("nodes") as test:
    with test.case("the uninterrupted run"):
        reference = whole_curve(test.train("reference", 3, KEYS | STEPS), STEPS["training.steps"])
    for case in (worker_then_coordinator, agent_then_coordinator, stopped_at_any_node,
                 the_only_one_leaves_a_spare):
        with test.case(case.__name__.replace("_", " ")):
            case(test, reference)
