"""A step whose loss is not a number, under each training.nan_policy: the same curve on any world
size, and through kills. Skipping and rolling back leave the same run but for what is logged."""
import json

from lockstep_run import (EXIT_CONFIG, SOAK, TINY, Test, check, check_same, committed, metrics,
                          tail, whole_curve)

STEPS = 24
KEYS = TINY | {"training.steps": STEPS, "checkpoint.interval": 4, "checkpoint.keep_latest_k": 0,
               "checkpoint.when_busy": "wait"}
BAD = (6, 15, 24)  # the last one is the run's last step
# RANK:MOMENT:STEP where a generation is killed, and its ranks. A rollback loads in mid-run.
KILLS = {"skip": (("1:step:7", 2), ("0:update:11", 1), ("2:writing:16", 3), ("0:save:24", 2)),
         "rollback": (("1:load:6", 2), ("0:step:7", 3), ("0:load:15", 1), ("2:load:24", 3))}
ROLL = KEYS | {"training.nan_policy": "rollback", "debug.nan_steps": ",".join(map(str, BAD))}
SKIP = ROLL | {"training.nan_policy": "skip"}


def updates(curve):
    """Without the steps that made none."""
    return {step: bits for step, bits in curve.items() if step not in BAD}


def why_skipped(folder):
    return {line["step"]: line["skipped"] for line in metrics(folder) if "skipped" in line}


def trainer_state(test, folder):
    printed = test.command("checkpoint", "inspect", folder, "--json")
    return json.loads(printed)["trainer_state"]


def summary(folder):
    return json.loads((folder / "metrics.json").read_text())


def skip(test):
    run = test.ranks(test.folder / "skip_1", 1, SKIP)
    run.expect(0)
    reference = whole_curve(test.folder / "skip_1", STEPS)
    check(why_skipped(test.folder / "skip_1") == dict.fromkeys(BAD, "not finite"), metrics)
    check(run.log().count("the update is skipped") == len(BAD), tail(run.log()))
    check(all(reference[step][0] == "nan" for step in BAD), reference)
    state = trainer_state(test, test.folder / "skip_1")
    check(state["skipped_steps"] == len(BAD) and state["skip_list"] == [], state)
    for world_size, strategy in ((2, "full_shard"), (3, "ddp")):
        folder = test.train(f"skip_{world_size}", world_size,
                            SKIP | {"parallelism.strategy": strategy})
        check_same(reference, whole_curve(folder, STEPS), strategy)
    return reference


def roll_back(test, skipped):
    """To the checkpoints of 4, 12 and 20; each time the steps since then are done again."""
    for world_size, strategy in ((1, "full_shard"), (2, "ddp"), (3, "full_shard")):
        folder = test.folder / f"roll_{world_size}"
        run = test.ranks(folder, world_size, ROLL | {"parallelism.strategy": strategy})
        run.expect(0)
        check_same(updates(skipped), updates(whole_curve(folder, STEPS)), f"W={world_size}")
        check(why_skipped(folder) == dict.fromkeys(BAD, "left out"), why_skipped(folder))
        for bad in BAD:
            back = f"rolled back to step {(bad - 1) // 4 * 4} ("
            check(f"step {bad}: loss nan" in run.log() and back in run.log(), tail(run.log(), 60))
        redone = sum((bad - 1) % 4 for bad in BAD)
        check(len(metrics(folder)) == STEPS + redone, len(metrics(folder)), redone)
        state, totals = trainer_state(test, folder), summary(folder)
        check(state["skip_list"] == list(BAD) and state["skipped_steps"] == len(BAD), state)
        check(totals["rollbacks"] == len(BAD) and totals["skip_list"] == list(BAD), totals)
        check(totals["redone_steps"] == redone and totals["redone_mismatches"] == 0, totals)
    compared = test.command("compare", test.folder / "roll_1", test.folder / "roll_3",
                            "--require-identical")
    check("6 (left out), 15 (left out), 24 (left out)" in compared, compared)


def to_the_initial_weights(test, skipped):
    for name, keys in (("none_yet", {"checkpoint.interval": 0}),
                       ("no_saves", {"checkpoint.enable": "false"})):
        folder = test.folder / name
        run = test.ranks(folder, 2, ROLL | keys)
        run.expect(0)
        check(run.log().count("rolled back to step 0 (the initial weights)") == len(BAD),
              tail(run.log(), 60))
        check_same(updates(skipped), updates(whole_curve(folder, STEPS)), name)


def drawn(random):
    for _ in range(4):
        world_size, moment = random.choice((1, 2, 3)), random.choice(("load", "step", "update"))
        yield f"{random.randrange(world_size)}:{moment}:{random.randrange(STEPS)}", world_size


def killed(test, reference, policy, keys):
    """Each generation on another world size, with snapshots in memory or without."""
    memory = test.folder / f"memory_{policy}"
    memory.mkdir()
    snapshots = {"checkpoint.memory_interval": 2, "checkpoint.memory_folder": memory}
    folder = test.folder / f"killed_{policy}"
    for number, (moment, world_size) in enumerate(drawn(test.random) if SOAK else KILLS[policy]):
        run = test.ranks(folder, world_size, keys | (snapshots if number % 2 else {}),
                         stop_at=moment)
        check(run.stops() or SOAK, f"it ended before {moment}\n", tail(run.log(), 60))
        run.kill()
    test.ranks(folder, 2, keys).expect(0)
    check_same(whole_curve(reference, STEPS), whole_curve(folder, STEPS), str(folder))
    state = trainer_state(test, folder)
    check(state["skipped_steps"] == len(BAD), state)
    if policy == "rollback":
        # A kill right after going back forgets the list, and the step is met again.
        check(set(state["skip_list"]) <= set(BAD) and BAD[-1] in state["skip_list"], state)


def damaged_newest_checkpoint(test, reference):
    """Going back falls back as a resume does, and steps of the lost checkpoint are saved again."""
    folder = test.folder / "damaged"
    keys = ROLL | {"checkpoint.interval": 4}
    run = test.ranks(folder, 2, keys | {"training.steps": 13, "lr_scheduler.total_steps": STEPS})
    run.expect(0)
    for path in (folder / "checkpoints").glob("step_0000001[23]*/rank_00001.h5"):
        raw = bytearray(path.read_bytes())
        for offset in range(len(raw) // 4, len(raw) // 2, 512):
            raw[offset] ^= 0x10
        path.write_bytes(raw)
    # Steps 9 to 14 again; step 15 then goes back to the step 12 that was saved again.
    run = test.ranks(folder, 2, keys | {"lr_scheduler.total_steps": STEPS})
    run.expect(0)
    check("falling back" in run.log() and "rolled back to step 12 (" in run.log(),
          tail(run.log(), 80))
    check_same(reference, whole_curve(folder, STEPS), "damaged")
    check(summary(folder)["redone_mismatches"] == 0, summary(folder))


def stop(test):
    folder = test.folder / "stop"
    run = test.ranks(folder, 2, ROLL | {"training.nan_policy": "stop"})
    run.expect(EXIT_CONFIG)
    check("step 6: loss nan" in run.log() and "step 5 is saved" in run.log(), tail(run.log()))
    check(committed(folder)[0].startswith("step_00000005."), committed(folder))


def too_many(test):
    bad = range(3, 20)
    keys = {"training.nan_policy": "rollback", "debug.nan_steps": ",".join(map(str, bad))}
    folder = test.folder / "too_many"
    run = test.ranks(folder, 2, KEYS | keys)
    run.expect(EXIT_CONFIG)
    check("16 steps are skipped already" in run.log(), tail(run.log()))
    check("step 19: loss nan" in run.log() and "step 18 is saved" in run.log(), tail(run.log()))


with Test("not_finite") as test:
    with test.case("skip"):
        skipped = skip(test)
    for case in (roll_back, to_the_initial_weights):
        with test.case(case.__name__.replace("_", " ")):
            case(test, skipped)
    for policy, keys, name in (("skip", SKIP, "skip_1"), ("rollback", ROLL, "roll_1")):
        with test.case(f"killed, {policy}"):
            killed(test, test.folder / name, policy, keys)
    with test.case("damaged newest checkpoint"):
        damaged_newest_checkpoint(test, whole_curve(test.folder / "roll_1", STEPS))
    for case in (stop, too_many):
        with test.case(case.__name__.replace("_", " ")):
            case(test)
