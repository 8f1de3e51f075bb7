"""Validations that decide: training ends when the loss falls no more, and the best checkpoint
stays; the same ones whatever was killed or stopped on the way.

The learning rate is 0 behind step 6, so each validation up to that of step 6 has a lower loss than
the one before it, and all later ones have the same."""
import json

from launched import Launch
from lockstep_run import (EXIT_CONFIG, EXIT_RESUME, NO_CHECKPOINTS, TINY, Test, check, check_same,
                          committed, curve, metrics, step_of, tail, whole_curve)

BEST, PATIENCE = 6, 3
END = BEST + PATIENCE
KEYS = TINY | {"training.steps": 40, "lr_scheduler.total_steps": BEST + 1,
               "lr_scheduler.min_lr_factor": 0, "lr_scheduler.warmup_steps": 2,
               "validation.freq": 1, "validation.slots": 2, "validation.patience": PATIENCE,
               "checkpoint.keep_best": "true", "checkpoint.keep_latest_k": 2,
               "checkpoint.interval": 4, "checkpoint.when_busy": "wait"}


def listed(test, folder):
    return json.loads(test.command("checkpoint", "list", folder, "--json"))


def check_ended(test, folder, reference, what):
    check_same(reference, whole_curve(folder, END), what)
    steps = [step_of(name) for name in committed(folder)]
    check(sorted(set(steps)) == [BEST, END - 1, END], f"{what}: checkpoints of steps {steps}")
    best = [each for each in listed(test, folder) if each["best"]]
    check([each["step"] for each in best] == [BEST], f"{what}: {listed(test, folder)}")
    check(json.loads((folder / "metrics.json").read_text())["finished"], what)


def losses(folder):
    return {line["step"]: line["validation_loss"] for line in metrics(folder)
            if "validation_loss" in line}


with Test("early_stop") as test:
    folder = test.folder / "whole"
    with test.case("training ends when the loss falls no more"):
        run = test.ranks(folder, 2, KEYS)
        run.expect(0)
        reference = whole_curve(folder, END)
        found = losses(folder)
        check(all(found[step + 1] < found[step] for step in range(1, BEST)), found)
        check(all(found[step] == found[BEST] for step in range(BEST, END + 1)), found)
        check(f"{PATIENCE} validations in a row without a lower loss than" in run.log() and
              f"of step {BEST}; training ends at step {END} of 40" in run.log(), run.log())
        check_ended(test, folder, reference, "whole")
    with test.case("the same command again has nothing to do"):
        run = test.ranks(folder, 3, KEYS)
        run.expect(0)
        check("nothing to do" in run.log() and "validation.patience is exhausted" in run.log(),
              run.log())
        check(len(curve(folder)) == END, curve(folder))
    with test.case("more patience goes on"):
        run = test.ranks(folder, 1, KEYS | {"validation.patience": PATIENCE + 2})
        run.expect(0)
        check(len(curve(folder)) == END + 2, curve(folder))
        best = [each["step"] for each in listed(test, folder) if each["best"]]
        check(best == [BEST] and BEST in map(step_of, committed(folder)), best)
    with test.case("without a patience it goes to its last step, along the same curve"):
        keys = KEYS | NO_CHECKPOINTS | {"validation.patience": 0, "checkpoint.keep_best": "false",
                                        "training.steps": END + 3}
        longer = whole_curve(test.train("longer", 1, keys), END + 3)
        check_same(reference, {step: longer[step] for step in reference}, "longer")
    with test.case("killed before the best step, and behind it"):
        folder = test.folder / "killed"
        test.killed_at("1:step:3", folder, 2, KEYS)
        test.killed_at(f"0:update:{BEST + 2}", folder, 3, KEYS)
        test.ranks(folder, 1, KEYS).expect(0)
        check_ended(test, folder, reference, "killed")
    for step in (3, BEST, END - 1):
        with test.case(f"a stop in step {step} leaves out a validation, which is made up for"):
            name = f"stopped_{step}"
            launch = Launch(test, name, "2", KEYS | {"debug.stop_at": f"1:1:step:{step}"})
            launch.ask_to_stop(launch.stopped(1))
            launch.expect(EXIT_RESUME)
            last = metrics(launch.folder)[-1]
            check(last["step"] >= step and "validation_loss" not in last, last)
            again = Launch(test, name, "1", KEYS)
            again.expect(0)
            log = (launch.folder / "logs" / "rank_00000.log").read_text()
            check(f"validation after step {last['step']}, which a stop had skipped: loss" in log,
                  tail(log, 60))
            check_ended(test, launch.folder, reference, name)
    with test.case("the best one is exported, and kept by a prune"):
        folder = test.folder / "killed"
        said = test.command("export", folder, test.folder / "best", "--best")
        check(f"step_{BEST:08d}." in said, said)
        said = test.command("export", folder, test.folder / "newest")
        check(f"step_{END:08d}." in said, said)
        test.command("checkpoint", "prune", folder, "--keep-latest", 1, "--keep-best")
        steps = sorted(map(step_of, committed(folder)))
        check(steps == [BEST, END], steps)
        test.command("checkpoint", "prune", folder, "--keep-latest", 1)
        steps = sorted(map(step_of, committed(folder)))
        check(steps == [END], steps)
        test.command("export", folder, test.folder / "flat", "--best")
    with test.case("what goes by validations needs some"):
        for keys, said in ({"validation.patience": 2}, "validation.patience = 2 needs"), \
                          ({"checkpoint.keep_best": "true"}, "checkpoint.keep_best = true needs"):
            run = test.ranks(test.folder / "wrong", 1, TINY | keys)
            run.expect(EXIT_CONFIG)
            check(said in run.log(), run.log())
        unseen = test.train("unseen", 1, TINY | {"training.steps": 2})
        said = test.command("export", unseen, test.folder / "none", "--best", status=EXIT_CONFIG)
        check("--best needs checkpoints with a validation loss" in said, said)
