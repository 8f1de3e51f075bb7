"""A mixture of three sources: the same bits for every world size, validation included; and a resume
with another sequence length or another mixture states exactly what was drawn so far."""
import json
import shutil

from lockstep_run import TINY, Test, check, check_same, metrics, whole_curve

STEPS = 20
BEFORE, AFTER = 8, 14  # a run is stopped, changed and taken up after these steps


def sources(test):
    return [test.tokens(files=files, words=words) for files, words in
            ((24, 2500), (16, 1500), (30, 900))]


def mixture(folders, weights, more=None):
    return TINY | {"data.path": "", "data.sources": ",".join(map(str, folders)),
                   "data.weights": weights, "training.steps": STEPS, "training.slots": 6,
                   "validation.freq": 5, "validation.slots": 4,
                   "checkpoint.interval": 50} | (more or {})


def validation(folder):
    return {line["step"]: line["validation_loss"] for line in metrics(folder)
            if "validation_loss" in line}


def train_tokens(folder):
    return json.loads((folder / "manifest.json").read_text())["tokens"]["train"]


def hash_of(folder):
    return json.loads((folder / "manifest.json").read_text())["hash"]


def of_the_mixture(rows, weights):
    """Samples of each source among the first `rows`, counted by Bresenham's rule."""
    counts = [0] * len(weights)
    for row in range(rows):
        left, rest = row % sum(weights), sum(weights)
        for source, weight in enumerate(weights):
            taken = left * weight // rest
            if source + 1 == len(weights) or (left + 1) * weight // rest > taken:
                counts[source] += 1
                break
            left, rest = left - taken, rest - weight
    return counts


def goes_on(test, folders):
    """Another batch, then another mixture; a resume between keeps its place."""
    slots, batch, curves = 6, TINY["training.local_batch_size"], {}
    keys = {"validation.freq": 0, "lr_scheduler.total_steps": STEPS}
    later = {"training.local_batch_size": 2 * batch, "data.on_change": "continue"}
    for world_size in (1, 2, 3):
        run = test.folder / f"goes_on_{world_size}"
        test.ranks(run, 2, mixture(folders, "5,3,2", keys | {"training.steps": BEFORE})).expect(0)
        changed = mixture(folders, "5,3,2", keys | later)
        if world_size == 3:  # in two parts, the second one with the default
            test.ranks(run, 1, changed | {"training.steps": AFTER}).expect(0)
            changed["data.on_change"] = "jump"
        ranks = test.ranks(run, world_size, changed)
        ranks.expect(0)
        check("; skipped" not in ranks.log(), ranks.log())
        curves[world_size] = whole_curve(run, STEPS)
        check_same(curves[1], curves[world_size], f"W={world_size}")
        data = json.loads((run / "metrics.json").read_text())["data"]
        first = of_the_mixture(BEFORE * slots * batch, (5, 3, 2))
        check(data["changes"][0]["first_sample"] == dict(zip(map(hash_of, folders), first)), data)
        rest = of_the_mixture((STEPS - BEFORE) * slots * 2 * batch, (5, 3, 2))
        check([each["samples"] for each in data["drawn"]] == [a + b for a, b in zip(first, rest)],
              data)
    # One of its sources alone goes on behind what the mixture drew of it.
    run = test.folder / "goes_on_1"
    more = mixture(folders[:1], "", keys | {"training.steps": STEPS + 2, "data.weights": "",
                                            "data.sources": "", "data.path": folders[0],
                                            "data.on_change": "continue"})
    ranks = test.ranks(run, 2, more)
    ranks.expect(0)
    check(f"the next sample is number {first[0] + rest[0]}," in ranks.log(), ranks.log())
    jumped = test.folder / "jumped"
    test.ranks(jumped, 2, mixture(folders, "5,3,2", keys | {"training.steps": BEFORE})).expect(0)
    later["data.on_change"] = "jump"
    ranks = test.ranks(jumped, 2, mixture(folders, "5,3,2", keys | later))
    ranks.expect(0)
    check("; skipped: " in ranks.log() and " tokens" in ranks.log(), ranks.log())
    check(whole_curve(jumped, STEPS) != curves[1], "a jump is no jump")


with Test("mixture") as test:
    folders = sources(test)
    curves = {}
    for world_size in (1, 2, 3):
        with test.case(f"a mixture and its validation, W={world_size}"):
            folder = test.train(f"w{world_size}", world_size, mixture(folders, "5,3,2"))
            curves[world_size] = whole_curve(folder, STEPS), validation(folder)
            check(sorted(curves[world_size][1]) == [5, 10, 15, 20], "validations",
                  curves[world_size][1])
            check_same(curves[1][0], curves[world_size][0], f"W={world_size}")
            check(curves[world_size][1] == curves[1][1], "validation", curves)
            drawn = json.loads((folder / "metrics.json").read_text())["data"]
            rows = STEPS * 6 * TINY["training.local_batch_size"]
            check([each["samples"] for each in drawn["drawn"]] == of_the_mixture(rows, (5, 3, 2)),
                  drawn)
            check(drawn["changes"] == [], drawn)
    with test.case("epochs of one source are the steps that draw each sample so often"):
        small = test.tokens(files=4, words=300)
        keys = TINY | {"data.path": small, "training.slots": 6, "validation.freq": 0}
        samples = (train_tokens(small) - 1) // TINY["training.seq_len"]
        steps = -(-2 * samples // (6 * TINY["training.local_batch_size"]))
        check(4 <= steps < 100 and steps != 2 * STEPS, samples)
        by_steps = test.train("by_steps", 1, keys | {"training.steps": steps})
        del keys["training.steps"]
        by_epochs = test.train("by_epochs", 2, keys | {"training.epochs": 2})
        check_same(whole_curve(by_steps, steps), whole_curve(by_epochs, steps), "2 epochs")
        told = json.loads((by_epochs / "run_args.json").read_text())["config"]["training"]
        check((told["steps"], told["epochs"]) == (steps, 0), told)
    with test.case("other weights give another curve, and another validation"):
        folder = test.train("other", 2, mixture(folders, "1,1,8"))
        check(whole_curve(folder, STEPS) != curves[1][0], "the same curve")
        check(validation(folder) != curves[1][1], "the same validation")
    with test.case("changes in mid-run are stated exactly, through two of them"):
        batch = 6 * TINY["training.local_batch_size"]
        keys = {"validation.freq": 0, "lr_scheduler.total_steps": STEPS}
        run = test.folder / "changed"
        test.ranks(run, 2, mixture(folders, "5,3,2", keys | {"training.steps": BEFORE})).expect(0)
        again = mixture(folders[:2], "1,3", keys | {"training.steps": AFTER})
        changed = test.ranks(run, 3, again)
        changed.expect(0)
        log, a, b, c = changed.log(), *map(hash_of, folders)
        first, length = of_the_mixture(BEFORE * batch, (5, 3, 2)), TINY["training.seq_len"]
        for folder, count in zip(folders, first):
            check(f"({hash_of(folder)}): {count} samples, {count * length:,} tokens" in log or
                  f"{hash_of(folder)}: {count} samples, {count * length:,} tokens" in log, log)
        start = of_the_mixture(BEFORE * batch, (1, 3))
        for folder, sample in zip(folders, start):
            check(f"({hash_of(folder)}): the next sample is number {sample}," in log, sample, log)
        half = length // 2
        test.ranks(run, 1, again | {"training.steps": STEPS, "training.seq_len": half}).expect(0)
        data = json.loads((run / "metrics.json").read_text())["data"]
        second = [all - before for all, before in zip(of_the_mixture(AFTER * batch, (1, 3)), start)]
        third = [all - before for all, before in zip(of_the_mixture(STEPS * batch, (1, 3)),
                                                     of_the_mixture(AFTER * batch, (1, 3)))]
        second, third = second + [0], third + [0]
        want = {each: (x + y + z, (x + y) * length + z * half)
                for each, x, y, z in zip((a, b, c), first, second, third)}
        got = {each["source"]: (each["samples"], each["tokens"]) for each in data["drawn"]}
        check(got == want, got, want)
        check([each["after_step"] for each in data["changes"]] == [BEFORE, AFTER], data)
        check(data["changes"][0]["first_sample"] == dict(zip((a, b), start)), data)
        check(data["changes"][1]["seq_len"] == half, data)
    with test.case("data.on_change continue draws each sample once, for every world size"):
        goes_on(test, folders)
    with test.case("a resume without a change states nothing"):
        run = test.folder / "unchanged"
        for steps in (BEFORE, STEPS):
            ranks = test.ranks(run, 2, mixture(folders, "5,3,2", {"training.steps": steps,
                                               "lr_scheduler.total_steps": STEPS}))
            ranks.expect(0)
        check("the data change" not in ranks.log(), ranks.log())
        check_same(curves[1][0], whole_curve(run, STEPS), "resumed")
        shutil.rmtree(run)
