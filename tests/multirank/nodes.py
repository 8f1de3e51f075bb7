"""`lockstep launch` on several nodes, here three agents on the loopback: a worker, an agent and the
coordinator are killed, in turn, and of one that trains and a spare the one that trains; the others
go on, and the losses are those of a run left alone."""
import signal

from agents import KEYS, Agents
from lockstep_run import (EXIT_RESUME, Test, check, check_same, metrics, send, send_if_there,
                          whole_curve)

STEPS = {"training.steps": 40}
# Of a run that goes on until it is told to stop.
ENDLESS = {"training.steps": 100_000, "lr_scheduler.total_steps": STEPS["training.steps"]}


def stop_at(*points):
    return STEPS | {"debug.stop_at": ",".join(points)}


def kill_agent_while(nodes, worker, lost, world_size, what):
    """Of the node `lost`; `worker`, which stopped itself so that the run cannot end before, goes
    on, unless it was that node's or the next generation has ended it by then."""
    def disturb():
        nodes.kill_agent(lost)
        send_if_there(worker["pid"], signal.SIGCONT)
    nodes.after(disturb, world_size, f"SIGKILL of the {what} {lost}")


def worker_then_coordinator(test, reference):
    nodes = Agents(test, "worker_coordinator", 3, "1:3", stop_at("1:1:step:7", "2:2:step:15"))
    victim = nodes.stopped(1)
    nodes.after(lambda: send(victim["pid"], signal.SIGKILL), 3,
                f"SIGKILL of the worker of {victim['node']}")
    kill_agent_while(nodes, nodes.stopped(2, 2), nodes.coordinator(), 2, "coordinator")
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
    nodes = Agents(test, "agent_coordinator", 3, "1:3", stop_at("1:0:step:7", "2:1:step:17"))
    kill_agent_while(nodes, nodes.stopped(0), nodes.another(), 2, "agent")
    kill_agent_while(nodes, nodes.stopped(1, 2), nodes.coordinator(), 1, "coordinator, one of two,")
    nodes.expect(0)
    check_same(reference, whole_curve(nodes.folder, STEPS["training.steps"]),
               "agent and coordinator killed")
    check(nodes.sizes() == [3, 2, 1], nodes.sizes())


def two_workers_a_node(test, reference):
    """Gradients and parameters travel in two legs, the slots of a node together, and a node keeps
    what has come of parameters; what is left of a lost node has one leg, other parts of the state
    and other slots."""
    nodes = Agents(test, "pairs", 2, "1:2", stop_at("1:3:step:10") | {
        "launcher.nproc_per_node": 2, "parallelism.slot_map": "group_block",
        "parallelism.reshard_after_forward": "node"})
    kill_agent_while(nodes, nodes.stopped(3), nodes.another(), 2, "agent with two workers")
    nodes.expect(0)
    check_same(reference, whole_curve(nodes.folder, STEPS["training.steps"]), "a node of two lost")
    check(nodes.sizes() == [4, 2], nodes.sizes())


def five_workers_a_node(test, reference):
    """More ranks than make one group: what is small goes along a tree, snapshots to a buddy."""
    nodes = Agents(test, "fives", 2, "1:2", stop_at("1:9:step:10") | {
        "launcher.nproc_per_node": 5, "checkpoint.memory_interval": 2, "checkpoint.buddy": "true"})
    kill_agent_while(nodes, nodes.stopped(9), nodes.another(), 5, "agent with five workers")
    nodes.expect(0)
    check_same(reference, whole_curve(nodes.folder, STEPS["training.steps"]),
               "a node of five lost")
    check(nodes.sizes() == [10, 5], nodes.sizes())


def stopped_at_any_node(test, reference):
    nodes = Agents(test, "stopped", 2, "2", stop_at("1:1:step:7"))
    worker = nodes.stopped(1)
    nodes.agents["n1"].send_signal(signal.SIGTERM)
    nodes.await_(lambda: nodes.events("stop_requested"), "the coordinator's word")
    send(worker["pid"], signal.SIGCONT)
    nodes.expect(EXIT_RESUME)
    Agents(test, "stopped", 1, "1", STEPS | {"launcher.rdzv_endpoint": f"file:{test.folder}/meet"}
           ).expect(0)
    check_same(reference, whole_curve(nodes.folder, STEPS["training.steps"]),
               "stopped and started again")


def the_only_one_leaves_a_spare(test):
    nodes = Agents(test, "only_one", 1, "1:2", ENDLESS | {"launcher.last_call_seconds": 2})
    nodes.at(1, 6)
    nodes.add(1)
    nodes.await_(lambda: any("n1" in each["reason"] for each in nodes.events("node_joined")),
                 "the spare")
    # Nobody for 20 s, no beat for 6.5 s, the last call for others.
    nodes.after(lambda: nodes.kill_agent("n0"), 1, "SIGKILL of the only one that trains", 300)
    nodes.agents["n1"].send_signal(signal.SIGTERM)
    nodes.expect(EXIT_RESUME)
    check("rejoining the surviving nodes" in nodes.logs["n1"].read_text(), nodes.log())
    steps = max(line["step"] for line in metrics(nodes.folder))
    alone = test.train("alone", 1, KEYS | ENDLESS | {"training.steps": steps})
    check_same(whole_curve(alone, steps), whole_curve(nodes.folder, steps), "started over")


with Test("nodes") as test:
    with test.case("the uninterrupted run"):
        reference = whole_curve(test.train("reference", 3, KEYS | STEPS), STEPS["training.steps"])
    for case in (worker_then_coordinator, agent_then_coordinator, two_workers_a_node,
                 five_workers_a_node, stopped_at_any_node):
        with test.case(case.__name__.replace("_", " ")):
            case(test, reference)
    with test.case("the only one leaves a spare"):
        the_only_one_leaves_a_spare(test)
