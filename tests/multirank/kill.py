"""SIGKILL of any rank at any moment, then a resume on another world size: the same losses.

Chains of runs in one folder. Each run is killed at a phase that its victim's progress page shows,
or after a random time; the next one resumes on a random world size, under other settings that must
not change a bit. The oracle is an uninterrupted run in a folder of its own."""
import time

from lockstep_run import (SMALL, Test, check, check_same, committed, metrics, step_of, tail,
                          whole_curve)

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
KILLS_IN_CHAIN, MAX_CHAINS = 5, 8
# Where to strike; "any" is a random moment.
MOMENTS = (["start"] + ["load"] * 3 + ["step"] * 2 + ["update"] * 2 + ["staging"] * 3 +
           ["writing"] * 4 + ["voting"] * 3 + ["committed"] + ["any"] * 3)
MUST_BE_HIT = {"load", "step", "staging", "writing", "voting"}
LOOK_S = 0.0002


def at_moment(page, moment, after_steps):
    """Whether the page shows the moment, `after_steps` steps after its first one."""
    first = None

    def shows():
        nonlocal first
        step, phase, save_phase, _ = page.read()
        if moment in ("start", "load"):
            return phase == moment
        if first is None and phase == "step":
            first = step
        if first is None or step < first + after_steps:
            return False
        return moment in (phase, save_phase)
    return shows


def strike(test, run, moment):
    """Kills one rank at the moment, then the others. Where the victim was; None: the run ended."""
    world_size = len(run.processes)
    # The commit is rank 0's work: half of the votes and commits are cut off there.
    victim = 0 if moment in ("voting", "committed") and test.random.random() < 0.5 \
        else test.random.randrange(world_size)
    shows = at_moment(run.pages[victim], moment, test.random.randrange(7))
    delay_s = {"load": 0.05, "step": 0.05, "writing": 0.03, "any": 2.0}.get(moment, 0.001)
    while moment != "any" and run.running() and not shows():
        time.sleep(LOOK_S)
    time.sleep(test.random.random() * delay_s)
    if run.processes[victim].poll() is not None:
        return None
    run.processes[victim].kill()
    run.processes[victim].wait()
    step, phase, save_phase, _ = run.pages[victim].read()
    time.sleep(test.random.random() * 0.06)  # what the others still do meanwhile
    run.kill()
    return victim, step, phase, save_phase


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


def chain(test, name, moments, hits, keys, reference):
    folder = test.folder / name
    there, kills = [], 0  # committed checkpoints that the last kill left
    while True:
        moment = moments[-1] if moments and kills < KILLS_IN_CHAIN else None
        world_size = test.random.randint(1, 4)
        lines = len(metrics(folder))
        neutral = {key: test.random.choice(values) for key, values in NEUTRAL.items()}
        run = test.ranks(folder, world_size, keys | neutral)
        if moment is None:
            run.expect(0)
            struck = None
        else:
            struck = strike(test, run, moment)
            if struck is None:
                run.expect(0)
        new = metrics(folder)[lines:]
        started = run.pages[0].read()[1] not in ("start", "load")
        if started:
            check_resumed(run, there, new[0]["step"] if new else None)
        end = "ended" if struck is None else "rank {} at step {}, {}, {}".format(*struck)
        print(f"       {name} W={world_size} {' '.join(map(str, neutral.values()))}, "
              f"{moment or 'to the end'}: {end}; from {there[0] if there else 'nothing'}, "
              f"{len(new)} steps", flush=True)
        check("differ from here on" not in run.all_logs(), tail(run.all_logs(), 60))
        there = check_checkpoints(test, folder, there)
        if struck is None:
            break
        hits.append((moments.pop(), struck))
        kills += 1
    check(step_of(committed(folder)[0]) == STEPS, f"{name}: the last step is not saved")
    check_same(reference, whole_curve(folder, STEPS), name)
    return folder


with Test("kill") as test:
    moments, hits, chains = list(MOMENTS), [], 0
    test.random.shuffle(moments)
    keys = KEYS | {"training.mixed_precision_param": test.random.choice(("float32", "bfloat16"))}
    with test.case(f"the uninterrupted run, {keys['training.mixed_precision_param']}"):
        reference = whole_curve(test.train("reference", test.random.randint(1, 4), keys), STEPS)
    # A run that ends before its moment comes leaves that moment to the next chain.
    while moments and chains < MAX_CHAINS and not test.failures:
        with test.case(f"chain {chains}"):
            chain(test, f"chain_{chains}", moments, hits, keys, reference)
        chains += 1
    with test.case(f"every phase was hit in {len(hits)} kills"):
        check(len(hits) == len(MOMENTS), f"left over: {moments}")
        where = {place for _, (_, _, phase, save_phase) in hits for place in (phase, save_phase)}
        check(MUST_BE_HIT <= where, f"never hit: {MUST_BE_HIT - where}")
