"""The determinism test can fail: each rule of the arithmetic, broken in the production path by
debug.break_rule, gives another curve for another world size."""
from lockstep_run import (NO_CHECKPOINTS, TINY, Test, check, check_same, first_difference,
                          whole_curve)

BASE = TINY | NO_CHECKPOINTS | {"parallelism.strategy": "full_shard"}
STEPS = BASE["training.steps"]

# In rounds of three ranks a running sum over four slots adds in the order of one rank: rule 4 needs
# V=6 to be seen there.
WORLD_SIZES = {4: (2,), 6: (2, 3)}

with Test("rules") as test:
    for slots, world_sizes in WORLD_SIZES.items():
        for rule in ("", "1", "3", "4", "5", "6"):
            keys = BASE | {"training.slots": slots, "debug.break_rule": rule}
            with test.case(f"V={slots}, rule {rule or '(none)'} broken"):
                one, *others = [
                    whole_curve(test.train(f"V{slots}_rule{rule}_W{world_size}", world_size, keys),
                                STEPS) for world_size in (1, *world_sizes)]
                for world_size, other in zip(world_sizes, others):
                    what = f"rule {rule or '(none)'}, W=1 and W={world_size}"
                    if not rule:
                        check_same(one, other, what)
                        continue
                    difference = first_difference(one, other)
                    check(difference, f"{what}: the same bits, so the test sees nothing")
                    print(f"       {what}: {difference}")
