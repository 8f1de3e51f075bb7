"""A run audits its state at rest: a bit that turns over in weights or moments between two updates,
in the gathered weights, or in what a gather or an exchange brought is found, and the
rank, the unit and whether memory or wire did it are named. Nobody is named where all is sound."""
import json

from agents import KEYS, Agents
from audit_runs import (AUDITED, AUDITS, BIT, EVERY, FROM_GROUP, FROM_GROUPS, GATHERED, GIVEN,
                        MOMENT, PASSED_ON, RUN, SECOND_MOMENT, STEPS, WEIGHT, audits, check_sound,
                        flipped, last_curve)
from lockstep_run import (EXIT_WRONG_BITS, Test, check, check_same, metrics, program,
                          whole_curve)

BF16 = {"training.mixed_precision_param": "bfloat16"}
DDP = {"parallelism.strategy": "ddp"}
GRAD_OP = {"parallelism.strategy": "shard_grad_op"}
HYBRID = {"parallelism.strategy": "hybrid", "parallelism.data_parallel_shard_degree": 2}
OFFLOAD = {"training.enable_cpu_offload": "true"}
BF16_MOMENTS = {"optimizer.state_dtype": "bfloat16"}
MUON = {"optimizer.name": "Muon"}
# Step 7 is gone back over, with two updates, and left out.
LEFT_OUT = {"training.nan_policy": "rollback", "debug.nan_steps": "7", "checkpoint.interval": EVERY}
LORA = {"lora.rank": 4, "lora.target_modules": "q_proj,v_proj,o_proj,gate_proj"}
NAMES = {WEIGHT: "fp32 weights", MOMENT: "first moments", SECOND_MOMENT: "second moments",
         GIVEN: "gathered weights"}
SOUND = (
    ("bf16 moments", 2, BF16 | BF16_MOMENTS | DDP),
    ("muon", 3, MUON),
    ("muon, copies", 4, MUON | HYBRID),
    ("adapters", 2, LORA | BF16),
    ("adapters, copies", 3, LORA | DDP),
    ("a skipped update", 2, DDP | {"training.nan_policy": "skip", "debug.nan_steps": "3,4,8"}),
    ("going back", 2, {"training.nan_policy": "rollback", "debug.nan_steps": "3,8"}),
    ("going back, copies", 4, HYBRID | {"training.nan_policy": "rollback",
                                        "debug.nan_steps": "4,7"}),
    ("validation beside it", 2, {"validation.freq": 2, "validation.slots": 2}),
)


def found_in(folder, step):
    """What the audit of this step says; those of the others must have found nothing."""
    found = audits(folder)
    check(sorted(found) == AUDITS, sorted(found))
    others = [audit for at, audit in found.items() if at != step]
    check(all(audit["same"] for audit in others), found)
    check(not found[step]["same"], found)
    return found[step]


def memory(test, name, world_size, keys, kind, place, again=()):
    """A bit of rank 1 turns over behind the update of step 7; in the steps `again` it is found once
    more, by what other ranks hold."""
    what = f"{name} {NAMES[kind]}"
    with test.case(f"memory: {what}"):
        folder, logs = flipped(test, what.replace(" ", "_"), world_size,
                               f"7 1 {kind} {place} {BIT}", keys, 0)
        found = audits(folder)
        check([step for step, audit in found.items() if not audit["same"]] == [8, *again], found)
        check(found[8]["wrong"] == [1] and found[8]["undecided"] == [], found[8])
        check(f"memory of rank 1: {NAMES[kind]} of " in found[8]["difference"], found[8])
        check("an audit found that rank 1 on " in logs and " has wrong bits: memory of rank 1: "
              in logs, logs)


def memories(test):
    for kind in (WEIGHT, MOMENT, SECOND_MOMENT):
        memory(test, "full_shard 3", 3, {}, kind, 1234567)
    memory(test, "ddp 2", 2, DDP, WEIGHT, 1234567, again=[12])
    memory(test, "ddp 2", 2, DDP | BF16_MOMENTS, MOMENT, 7654321, again=[12])
    memory(test, "hybrid", 4, HYBRID | BF16, WEIGHT, 33, again=[12])
    memory(test, "grad_op", 2, GRAD_OP | BF16, GIVEN, 1234567)
    memory(test, "offload", 2, OFFLOAD, SECOND_MOMENT, 5)
    memory(test, "muon", 3, MUON, MOMENT, 77)
    memory(test, "behind a step that is left out", 3, LEFT_OUT, WEIGHT, 1234567)


def copies(test):
    with test.case("copies: what turned over before is found, and a third one says who is right"):
        folder, _ = flipped(test, "copies_3", 3, f"5 1 {MOMENT} 77 {BIT}", DDP, 0)
        found = audits(folder)
        check(found[4]["same"] and not found[8]["same"] and not found[12]["same"], found)
        check(found[8]["wrong"] == found[12]["wrong"] == [1], found)
        check("copy of rank 1: fp32 weights of " in found[8]["difference"], found[8])
    with test.case("copies: two that contradict each other are both named"):
        folder, logs = flipped(test, "copies_4", 4, f"5 1 {WEIGHT} 77 {BIT}", HYBRID, 0)
        found = audits(folder)[8]
        check(found["wrong"] == [] and found["undecided"] == [1, 3], found)
        check("copy of rank 1: " in found["difference"] and "copy of rank 3: "
              in found["difference"] and "contradict each other" in logs, found, logs)
    with test.case("without copies nobody sees it: a replay does"):
        folder, _ = flipped(test, "no_copies", 3, f"5 1 {WEIGHT} 77 {BIT}", {}, 0)
        check_sound(folder, AUDITS)


def wires(test):
    for name, world_size, keys in (("full_shard 3", 3, {}), ("bfloat16", 2, BF16),
                                   ("grad_op", 3, GRAD_OP), ("hybrid", 4, HYBRID | BF16)):
        with test.case(f"wire: what one rank received from another: {name}"):
            folder, logs = flipped(test, f"wire_{name.replace(' ', '_')}", world_size,
                                   f"8 1 {GATHERED} 1 {BIT}", keys, 0)  # its first element
            found = found_in(folder, 8)
            check(found["wrong"] == [1] and found["undecided"] == [], found)
            check("what rank 1 received from rank 0 of the gathered weights of layers.0"
                  in found["difference"] and "has wrong bits: network" in logs, found, logs)


def exchanges(test):
    block = {"parallelism.slot_map": "block"}
    for name, world_size, keys, kind in (
            ("full_shard 3", 3, {}, FROM_GROUP), ("bfloat16", 2, BF16, FROM_GROUP),
            ("ddp", 2, DDP, FROM_GROUPS), ("hybrid", 4, HYBRID | BF16, FROM_GROUP),
            ("block", 3, block, FROM_GROUP)):
        with test.case(f"wire of gradients: what one rank received from another: {name}"):
            folder, logs = flipped(test, f"exchange_{name.replace(' ', '_')}", world_size,
                                   f"8 1 {kind} 1 {BIT}", keys, 0)  # its first element
            found = found_in(folder, 8)
            check(found["wrong"] == [1] and found["undecided"] == [], found)
            check("what rank 1 received from rank 0 of the gradients of layers.0 differs from what "
                  "that rank sent" in found["difference"], found)
            check("has wrong bits: network" in logs, logs)


def two_nodes(test):
    """Groups of three ranks. The first unit that is gathered is the embedding: of five tiles, whose
    first one rank 0 owns and the second one rank 3. Each of the two brings in both, and its group
    copies them from it."""
    tile_bytes = 4096 * 4
    test.environment["LOCAL_WORLD_SIZE"] = "3"
    for name, flip, named, said in (
            ("who passes on", f"3 {PASSED_ON} 1001", 3, "4 received from rank 0 through rank 3"),
            ("who passes on, the first node", f"0 {PASSED_ON} {tile_bytes + 1001}", 0,
             "1 received from rank 3 through rank 0"),
            ("what its own group takes from a rank", f"0 {PASSED_ON} 1001", 0,
             "2 received from rank 0"),
            ("who takes on the second leg", f"4 {GATHERED} 1", 4,
             "4 received from rank 0 through rank 3"),
            ("who takes on the first leg", f"3 {GATHERED} 1", 3, "3 received from rank 0")):
        with test.case(f"wire, two nodes: {name}"):
            rank, rest = flip.split(" ", 1)
            folder, _ = flipped(test, f"two_nodes_{name.replace(' ', '_').replace(',', '')}", 6,
                                f"8 {rank} {rest} {BIT}", {}, 0)
            found = found_in(folder, 8)
            check(found["wrong"] == [named] and found["undecided"] == [], found)
            check(f"what rank {said} of the gathered weights of "
                  in found["difference"], found)
    for name, kind, named, source in (("from its node", FROM_GROUP, 4, 3),
                                      ("from another node", FROM_GROUPS, 4, 1)):
        with test.case(f"wire of gradients, two nodes: {name}"):
            folder, _ = flipped(test, f"two_nodes_{name.replace(' ', '_')}", 6,
                                f"8 {named} {kind} 1 {BIT}", {}, 0)
            found = found_in(folder, 8)
            check(found["wrong"] == [named] and found["undecided"] == [], found)
            check(f"what rank {named} received from rank {source} of the gradients of layers.0"
                  in found["difference"], found)
    with test.case("nobody is named: two nodes"):
        check_sound(test.train("two_nodes_sound", 6, AUDITED), AUDITS)
    del test.environment["LOCAL_WORLD_SIZE"]


def stopped(test, reference):
    keys = {"audit.action": "stop"}
    with test.case("stop: memory is named, and what is suspect is marked"):
        folder, logs = flipped(test, "stop", 3, f"7 1 {MOMENT} 77 {BIT}", keys, EXIT_WRONG_BITS)
        check("step 8: an audit found that rank 1 on " in logs and "memory of rank 1: first moments"
              in logs and "the update was not made" in logs, logs)
        suspects = json.loads((folder / "checkpoints/suspect.json").read_text())["suspect"]
        found = [(each["after_step"], each["found_at_step"], each["ranks"]) for each in suspects]
        check(found == [(4, 8, [1])], suspects)
    with test.case("the next run has the reference's curve"):
        test.ranks(folder, 2, AUDITED | keys).expect(0)
        check_same(reference, last_curve(folder, STEPS), "resumed")


def evicted(test):
    steps = {"training.steps": 16, "audit.interval": EVERY, "audit.action": "evict"}
    test.environment["LOCKSTEP_WORKER"] = program("lockstep-flip-worker")
    reference = whole_curve(test.train("nodes_reference", 2, KEYS | steps), 16)
    with test.case("evict: the others go on without the node whose memory is named"):
        nodes = Agents(test, "evict", 0, "1:3", steps)
        for each in range(3):
            flip = {"LOCKSTEP_FLIP_BIT": f"7 -1 {WEIGHT} 77 {BIT}"}
            nodes.add(each, own_environment=flip if each == 1 else None)
        nodes.expect(0)
        check(nodes.sizes() == [3, 2], nodes.sizes())
        check("n1" in nodes.events("node_barred")[0]["reason"], nodes.events())
        check_same(reference, last_curve(nodes.folder, 16), "without the node")
    del test.environment["LOCKSTEP_WORKER"]


def sound(test):
    for name, world_size, keys in SOUND:
        with test.case(f"nobody is named: {name}"):
            each = RUN | {"audit.interval": 1} | keys
            folder = test.folder / f"sound_{name.replace(' ', '_').replace(',', '')}"
            test.killed_at(f"0:step:{EVERY + 2}", folder, world_size, each)
            test.ranks(folder, world_size, each).expect(0)
            found = [line["audit"] for line in metrics(folder) if "audit" in line]
            check(len(found) >= STEPS - 4 and all(audit["same"] for audit in found), found)


with Test("audit_state") as test:
    with test.case("the run without audits"):
        reference = whole_curve(test.train("reference", 1, RUN), STEPS)
    sound(test)
    memories(test)
    copies(test)
    wires(test)
    exchanges(test)
    two_nodes(test)
    stopped(test, reference)
    evicted(test)
