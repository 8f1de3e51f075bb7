"""What the tests of audits share: a run that audits itself, a worker with a bit that turns over,
and what a run's lines say of its audits."""
from agents import KEYS, Agents
from lockstep_run import RUN_TIMEOUT_S, TINY, check, check_same, metrics, program, whole_curve

STEPS, EVERY, SAVE = 12, 4, 2
AUDITS = [1, 4, 8, 12]  # the first one of a generation, and every fourth step
RUN = TINY | {"training.steps": STEPS, "checkpoint.interval": SAVE, "checkpoint.codec": "none",
              "checkpoint.keep_latest_k": 0, "checkpoint.when_busy": "wait"}
AUDITED = RUN | {"audit.interval": EVERY}
# core/audit/bit_flip.h: FlipIn and FlipWhen.
(ACTIVATION, INPUT_GRADIENT, GRADIENT_SUM, WEIGHT, MOMENT, SECOND_MOMENT, GIVEN,
 GATHERED, PASSED_ON, FROM_GROUP, FROM_GROUPS) = range(11)
BIT = 22
FOR_GOOD, EACH_STEP, IN_A_SHARE = " 1", " 2", " 3"
SPREADS = (
    ("one rank", 1, {}),
    ("full_shard 3", 3, {}),
    ("ddp 2", 2, {"parallelism.strategy": "ddp"}),
    ("grad_op 4", 4, {"parallelism.strategy": "shard_grad_op"}),
    ("hybrid", 4, {"parallelism.strategy": "hybrid", "parallelism.data_parallel_shard_degree": 2}),
    ("block", 3, {"parallelism.slot_map": "block"}),
    ("more ranks than slots", 5, {}),
    ("one unit", 2, {"parallelism.wrap_policy": "none"}),
    ("offload", 2, {"training.enable_cpu_offload": "true"}),
    ("recompute", 2, {"activation_checkpoint.mode": "full"}),
)


def audits(folder):
    """{step: what its line says of the audit}"""
    return {line["step"]: line["audit"] for line in metrics(folder) if "audit" in line}


def last_curve(folder, steps):
    """What each step gave when it was done last: what a wrong device computed is done again."""
    last = {line["step"]: (line["loss_hex"], line["grad_norm_hex"]) for line in metrics(folder)}
    check(sorted(last) == list(range(1, steps + 1)), f"{folder}: steps {sorted(last)}")
    return last


def flipped(test, name, world_size, flip, keys, status, timeout_s=RUN_TIMEOUT_S):
    """The run's folder and logs; `flip`: LOCKSTEP_FLIP_BIT's words."""
    test.environment["LOCKSTEP_FLIP_BIT"] = flip
    folder = test.folder / name
    ranks = test.ranks(folder, world_size, AUDITED | keys, worker="lockstep-flip-worker")
    del test.environment["LOCKSTEP_FLIP_BIT"]
    ranks.expect(status, timeout_s)
    check("debug: flipped a bit of element" in ranks.all_logs(), "no bit was flipped")
    return folder, ranks.all_logs()


def check_sound(folder, steps):
    found = audits(folder)
    check(sorted(found) == steps, sorted(found), steps)
    check(all(audit["same"] and audit["rounds"] == 1 for audit in found.values()), found)


def nodes_evicted(test, hosts=None):
    """One node of three computes wrongly for good, another one and then the coordinator's. `hosts`:
    as of Agents."""
    steps = {"training.steps": 24, "audit.interval": EVERY, "audit.action": "evict"}
    test.environment["LOCKSTEP_WORKER"] = program("lockstep-flip-worker")
    reference = whole_curve(test.train("nodes_reference", 2, KEYS | steps), 24)
    for number, what in ((1, "another node"), (0, "the node that coordinates")):
        with test.case(f"evict: the others go on without {what}, with the same curve"):
            nodes = Agents(test, f"evict_{number}", 0, "1:3", steps, hosts)
            for each in range(3):
                flip = {"LOCKSTEP_FLIP_BIT": f"6 -1 {ACTIVATION} 77 {BIT}{FOR_GOOD}"}
                nodes.add(each, own_environment=flip if each == number else None)
            nodes.expect(0)
            check(nodes.sizes() == [3, 2], nodes.sizes())
            check(f"n{number}" in nodes.events("node_barred")[0]["reason"], nodes.events())
            check_same(reference, last_curve(nodes.folder, 24), "without the node")
            check(all(audit["same"] for audit in audits(nodes.folder).values()), "a suspect line")
