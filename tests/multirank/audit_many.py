"""Audits by number: bits that turn over at random places, one a step, and every step is audited; a
rank that errs in a share of its slots; sound runs of all kinds. It prints what it counts
(docs/AUDIT.md, "Counted")."""
import re

from audit_runs import (ACTIVATION, AUDITED, BIT, EACH_STEP, FROM_GROUP, FROM_GROUPS, GATHERED,
                        GIVEN, IN_A_SHARE, INPUT_GRADIENT, MOMENT, PASSED_ON, SECOND_MOMENT,
                        SPREADS, WEIGHT, audits, flipped)
from lockstep_run import SOAK, Test, check, metrics

SHARE = 0.25
LONG_RUN_S = 1000
BF16 = {"training.mixed_precision_param": "bfloat16"}
NODE = "3"  # ranks of each of two nodes
MANTISSA, BF16_MANTISSA = 23, 7  # so that what stays turned over is finite
# From another rank, or the rank's own part.
CAME = r"(received from rank \d of the|memory of rank \d:) %s of \S+ (differs|changed in)"
# Kind, name, rank, world size, keys, lowest bits of which one turns over (0: any), a pattern of
# what the audit of the step behind says, or that of the step itself.
BEHIND = (
    (WEIGHT, "fp32 weights", 1, 3, {}, MANTISSA, "memory of rank 1: fp32 weights of "),
    (MOMENT, "first moments", 1, 3, {}, MANTISSA, "memory of rank 1: first moments of "),
    (SECOND_MOMENT, "second moments", 1, 3, {}, MANTISSA, "memory of rank 1: second moments of "),
    (GIVEN, "bf16 weights that others gather", 1, 3, BF16, BF16_MANTISSA,
     "memory of rank 1: gathered weights of "),
)
INSIDE = (
    (ACTIVATION, "activations", 1, 3, {}, 0, "slot "),
    (INPUT_GRADIENT, "gradients in backward", 1, 3, {}, 0, "slot "),
    (GATHERED, "weights that came by a gather", 1, 3, {}, 0, CAME % "gathered weights"),
    (PASSED_ON, "weights passed on inside a node", 3, 6, {}, 0, " received from rank "),
    (FROM_GROUP, "gradients that came inside a node", 1, 3, {}, 0, CAME % "gradients"),
    (FROM_GROUPS, "gradients that came from another node", 4, 6, {}, 0, CAME % "gradients"),
)
# What computes may round a bit away, and a part that is passed on may be padding: what is held and
# what comes has no such bits.
MAY_VANISH = (ACTIVATION, INPUT_GRADIENT, PASSED_ON)


def run_with_flips(test, steps, name, rank, world_size, kind, keys, words):
    """The run's audits, and the steps in which a bit was turned over, one for each."""
    common = {"training.steps": steps, "audit.interval": 1, "optimizer.lr": 1e-6,
              "lr_scheduler.warmup_steps": 0, "training.nan_policy": "skip",
              "training.slots": max(world_size, 4), "checkpoint.enable": "false"}
    if world_size > int(NODE):
        test.environment["LOCAL_WORLD_SIZE"] = NODE
    folder, logs = flipped(test, name, world_size, f"1 {rank} {kind} {test.seed} {words}",
                           common | keys, 0, LONG_RUN_S)
    test.environment.pop("LOCAL_WORLD_SIZE", None)
    done = [int(step) for step in re.findall(r"flipped a bit of element .*, step (\d+)", logs)]
    found = audits(folder)
    check(sorted(found) == list(range(1, steps + 1)), sorted(found))
    return found, done


def named(found, rank, said):
    """The steps whose audit found something; each must have named this rank, and nobody else."""
    wrong = {step: audit for step, audit in found.items() if not audit["same"]}
    for step, audit in wrong.items():
        check(audit["wrong"] == [rank] and audit["undecided"] == []
              and re.search(said, audit["difference"]), step, audit)
    return sorted(wrong)


def many_flips(test, steps):
    total = 0
    for later, kinds in ((1, BEHIND), (0, INSIDE)):
        for kind, name, rank, world_size, keys, bits, said in kinds:
            with test.case(f"{steps} flips in {name}, one a step"):
                found, done = run_with_flips(test, steps + later, f"many_{kind}", rank, world_size,
                                             kind, keys, f"{bits}{EACH_STEP}")
                check(done == list(range(1, steps + later + 1)), done)
                seen = named(found, rank, said)
                check(later == 0 or 1 not in seen, seen)
                print(f"       {name}: {len(seen)} of {steps} reached a digest, and rank {rank} "
                      "was named each time", flush=True)
                check(len(seen) > steps // 2 if kind in MAY_VANISH else len(seen) == steps,
                      len(seen))
                total += steps
    print(f"       {total} flips", flush=True)


def errs_in_a_share(test, steps):
    with test.case(f"a rank that errs in {SHARE} of its slots, {steps} audits"):
        found, done = run_with_flips(test, steps, "share", 1, 3, ACTIVATION, {},
                                     f"{BIT}{IN_A_SHARE} {SHARE}")
        seen, erred = named(found, 1, "slot "), set(done)
        check(set(seen) <= erred, sorted(set(seen) - erred))
        expected = 1 - (1 - SHARE) ** 2
        gaps = [after - before for before, after in zip([0, *seen], seen)]
        print(f"       named at {len(seen)} of {steps} audits ({len(seen) / steps:.3f}; "
              f"{expected:.4f} expected), after {sum(gaps) / len(gaps):.2f} audits in the mean "
              f"({1 / expected:.2f} expected) and {max(gaps)} at most; it had erred in "
              f"{len(erred)} steps", flush=True)
        check(len(seen) > len(erred) // 2, len(seen), len(erred))


def many_sound_rounds(test, steps):
    """Nobody is named: every step of every spread is audited, with saves beside it and a kill."""
    rounds = 0
    spreads = (*SPREADS, ("six ranks on two nodes", 6, {}))
    for name, world_size, keys in spreads if SOAK else spreads[-1:]:
        for precision in ("float32", "bfloat16"):
            with test.case(f"{steps} audits of a sound run: {name}, {precision}"):
                folder = test.folder / f"sound_{precision}_{name.replace(' ', '_')}"
                common = AUDITED | keys | {
                    "audit.interval": 1, "training.steps": steps, "checkpoint.keep_latest_k": 2,
                    "checkpoint.interval": 20, "training.mixed_precision_param": precision}
                if "two nodes" in name:
                    test.environment["LOCAL_WORLD_SIZE"] = NODE
                test.killed_at(f"0:step:{steps // 2}", folder, world_size, common)
                test.ranks(folder, world_size, common).expect(0, LONG_RUN_S)
                test.environment.pop("LOCAL_WORLD_SIZE", None)
                found = [line["audit"] for line in metrics(folder)]
                check(all(audit["same"] and audit["rounds"] == 1 for audit in found), folder)
                check(len(found) >= steps, len(found))
                rounds += len(found)
    print(f"       {rounds} audits, no alarm", flush=True)


with Test("audit_many") as test:
    many_flips(test, 250 if SOAK else 15)
    errs_in_a_share(test, 1000 if SOAK else 40)
    many_sound_rounds(test, 500 if SOAK else 15)
