"""SIGKILL of a rank at every moment that its progress page names, then a resume on another world
size: the same losses.

Chains of runs in one folder. In each run one rank stops itself at a moment (debug.stop_at) and is
killed there, so that every moment is hit; the next run resumes, under other settings that must not
change a bit. The oracle is an uninterrupted run in a folder of its own. `kill.py soak` draws
moments, steps and ranks, and kills some time after the moment."""
import signal
import time
from typing import NamedTuple

from lockstep_run import (EXIT_PEER_LOST, SMALL, SOAK, Test, check, check_same, committed, metrics,
                          step_of, tail, whole_curve)

STEPS = 32
KEEP = 3
KEYS = SMALL | {"training.steps": STEPS, "checkpoint.interval": 2, "validation.freq": 5,
                "checkpoint.keep_latest_k": KEEP, "validation.slots": 2}
# What one generation may have otherwise than the one before it.
NEUTRAL = {"parallelism.strategy": ("full_shard", "ddp", "shard_grad_op", "hybrid"),
           "parallelism.data_parallel_shard_degree": (2,),
           "parallelism.wrap_policy": ("module_wrap", "none"),
           "parallelism.slot_map": ("cyclic", "block"), "checkpoint.codec": ("zstd", "none"),
           "checkpoint.threads": (1, 2), "checkpoint.when_busy": ("skip", "wait")}


class Kill(NamedTuple):
    world_size: int
    at: str             # RANK:MOMENT:STEP
    alone: bool = True  # the others are left to find out for themselves; else they are killed, too
    later_s: float = 0  # from the moment to the kill


# Rank 0 commits: it is killed at every moment of a save.
CHAINS = {
    "float32": (Kill(3, "2:start:0", alone=False), Kill(2, "0:load:0", alone=False),
                Kill(3, "2:staging:4"), Kill(1, "0:writing:8"), Kill(4, "0:voting:12"),
                Kill(2, "1:load:0", alone=False), Kill(3, "0:committed:18"), Kill(4, "3:eval:20"),
                Kill(3, "1:step:27"), Kill(2, "1:done:32", alone=False)),
    "bfloat16": (Kill(2, "0:staging:2"), Kill(3, "2:writing:6"), Kill(4, "0:writing:10"),
                 Kill(3, "1:voting:14", alone=False), Kill(4, "2:committed:20"),
                 Kill(1, "0:save:22"), Kill(2, "1:update:27"), Kill(3, "0:save:32", alone=False))}


def drawn(random):
    moments = ["start", "load", "step", "update", "eval", "save", "staging", "writing", "voting",
               "committed", "done"]
    kills = []
    for _ in range(6):
        world_size, moment = random.randint(1, 4), random.choice(moments)
        step = {"start": 0, "load": 0, "done": STEPS}.get(moment, random.randint(1, STEPS))
        later_s = random.choice((0, 0.05, 2)) * random.random()
        alone = random.random() < 0.5 and later_s == 0 and 1 <= step < STEPS - 2
        kills.append(Kill(world_size, f"{random.randrange(world_size)}:{moment}:{step}", alone,
                          later_s))
    return kills


def strike(run, kill):
    """Whether the victim was there to be killed. What is drawn may come too late."""
    if SOAK and not run.stops():
        return False
    victim = run.await_stop()
    if kill.later_s:
        victim.send_signal(signal.SIGCONT)
        time.sleep(kill.later_s)
    if victim.poll() is not None:
        return False
    victim.kill()
    if kill.alone:
        statuses = run.wait()
        check(sorted(statuses) == [-signal.SIGKILL] + [EXIT_PEER_LOST] * (len(statuses) - 1),
              f"exit statuses {statuses}\n{tail(run.all_logs(), 60)}")
    run.kill()
    return True


def check_checkpoints(test, folder, before):
    """None of those committed before is lost, except to newer ones; all can be read."""
    after = committed(folder)
    for name in before:
        newer = [other for other in after if step_of(other) > step_of(name)]
        check(name in after or len(newer) >= KEEP, f"{name} is lost; there are {after}")
    for name in after:
        test.command("checkpoint", "verify", folder / "checkpoints" / name)
    return after


def check_resumed(run, there, first_step):
    """The newest checkpoint with a manifest was taken, and nothing else."""
    log = run.log()
    if there:
        check(f"/{there[0]} at step {step_of(there[0])}:" in log,
              f"not resumed from {there[0]}; there were {there}\n{tail(log, 60)}")
    else:
        check("resumed from" not in log, f"resumed from nothing\n{tail(log, 60)}")
    expected = step_of(there[0]) + 1 if there else 1
    check(first_step in (None, expected), f"first step {first_step}, not {expected}")


def generation(test, folder, keys, kill, there):
    """One run of a chain; the checkpoints afterwards."""
    lines = len(metrics(folder))
    neutral = {key: test.random.choice(values) for key, values in NEUTRAL.items()}
    world_size = kill.world_size if kill else 2
    run = test.ranks(folder, world_size, keys | neutral, stop_at=kill.at if kill else None)
    killed = kill is not None and strike(run, kill)
    if not killed:
        run.expect(0)
    new = metrics(folder)[lines:]
    if run.pages[0].read()[1] not in ("start", "load"):
        check_resumed(run, there, new[0]["step"] if new else None)
    print(f"       {folder.name} W={world_size} {' '.join(map(str, neutral.values()))}, "
          f"{kill.at if kill else 'to the end'}: {'killed' if killed else 'ended'}; from "
          f"{there[0] if there else 'nothing'}, {len(new)} steps", flush=True)
    check("differ from here on" not in run.all_logs(), tail(run.all_logs(), 60))
    return check_checkpoints(test, folder, there)


def chain(test, name, kills, keys, reference):
    folder, there = test.folder / name, []  # committed checkpoints that the last run left
    for kill in kills:
        there = generation(test, folder, keys, kill, there)
    generation(test, folder, keys, None, there)
    check(step_of(committed(folder)[0]) == STEPS, f"{name}: the last step is not saved")
    check_same(reference, whole_curve(folder, STEPS), name)


with Test("kill") as test:
    for precision, kills in CHAINS.items():
        keys = KEYS | {"training.mixed_precision_param": precision}
        with test.case(f"the uninterrupted run, {precision}"):
            reference = whole_curve(test.train(f"reference_{precision}", 3, keys), STEPS)
        with test.case(f"a chain of kills, {precision}"):
            chain(test, f"chain_{precision}", drawn(test.random) if SOAK else kills, keys,
                  reference)
