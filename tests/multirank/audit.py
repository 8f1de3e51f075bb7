"""A run that audits itself: an extra round, in which ranks compute each other's slots, names the
rank that computes wrongly, for good or once, and nobody where all are sound. What follows is a
warning, the end, or a run that goes on without that node from what was audited."""
import json

from audit_runs import (ACTIVATION, AUDITED, AUDITS, BIT, FOR_GOOD, INPUT_GRADIENT, RUN, SPREADS,
                        STEPS, audits, check_sound, flipped, last_curve, nodes_evicted)
from launched import Launch
from lockstep_run import EXIT_WRONG_BITS, Test, check, check_same, whole_curve


def sound_runs(test, reference):
    for name, world_size, keys in SPREADS:
        with test.case(f"nobody is named, and no bit is another one: {name}"):
            folder = test.train(name.replace(" ", "_"), world_size, AUDITED | keys)
            check_sound(folder, AUDITS)
            check_same(reference, whole_curve(folder, STEPS), name)
    with test.case("bfloat16, dropout: nobody is named, the same curve with and without audits"):
        keys = {"training.mixed_precision_param": "bfloat16", "model.dropout": 0.1}
        plain = whole_curve(test.train("dropout", 2, RUN | keys), STEPS)
        folder = test.train("dropout_audited", 3, AUDITED | keys)
        check_sound(folder, AUDITS)
        check_same(plain, whole_curve(folder, STEPS), "audited")


def named_once(test, kind, world_size, place):
    folder, logs = flipped(test, f"once_{kind}_{world_size}_{place}", world_size,
                           f"8 1 {kind} {place} {BIT}", {}, 0)
    found = audits(folder)
    check(found[4]["same"] and found[12]["same"] and not found[8]["same"], found)
    check(found[8]["wrong"] == [1] and found[8]["undecided"] == [], found[8])
    newest = json.loads(test.command("checkpoint", "inspect", folder, "--json"))["trainer_state"]
    check((newest["audited_step"], newest["audit_found"]) == (4, True), newest)
    check("an audit found that rank 1 on " in logs and "; training continues (audit.action" in logs,
          logs)


def single_errors(test):
    for kind, world_size, place in ((ACTIVATION, 2, 100001), (INPUT_GRADIENT, 3, 100002),
                                    (ACTIVATION, 4, 77)):
        with test.case(f"a rank that errs once, as it is audited: {kind}, {world_size} ranks"):
            named_once(test, kind, world_size, place)
    with test.case("a flip between two audits is not found by them"):
        folder, _ = flipped(test, "between", 3, f"6 1 {ACTIVATION} 77 {BIT}", {}, 0)
        check_sound(folder, AUDITS)


def stopped(test, reference):
    keys = {"audit.action": "stop"}
    with test.case("stop: the rank and its host are named, and what is suspect is marked"):
        folder, logs = flipped(test, "stop", 3, f"6 1 {ACTIVATION} 77 {BIT}{FOR_GOOD}", keys,
                               EXIT_WRONG_BITS)
        check("step 8: an audit found that rank 1 on " in logs and "sbatch --exclude" in logs, logs)
        suspects = json.loads((folder / "checkpoints/suspect.json").read_text())["suspect"]
        found = [(each["after_step"], each["found_at_step"], each["ranks"]) for each in suspects]
        check(found == [(4, 8, [1])], suspects)
        listed = test.command("checkpoint", "list", folder)
        lines = {int(line.split()[0]): line for line in listed.splitlines()}
        check("SUSPECT" in lines[6] and "SUSPECT" not in lines[4] + lines[2], listed)
        check("step 4 " in test.command("checkpoint", "inspect", folder), "not the newest one")
        status = test.command("status", folder)
        check("audit: step 8: rank 1 on " in status and "last checkpoint: step 4" in status, status)
    with test.case("the next run goes back to what was audited, and has the reference's curve"):
        ranks = test.ranks(folder, 2, AUDITED | keys)
        ranks.expect(0)
        check("at step 4" in ranks.all_logs() and "suspect" in ranks.all_logs(), ranks.all_logs())
        check_same(reference, last_curve(folder, STEPS), "resumed")
    with test.case("retention keeps the newest checkpoint that is audited whole"):
        few = {"checkpoint.interval": 1, "checkpoint.keep_latest_k": 2, "audit.interval": STEPS}
        folder, _ = flipped(test, "kept", 3, f"3 2 {ACTIVATION} 77 {BIT}{FOR_GOOD}", keys | few,
                            EXIT_WRONG_BITS)
        left = sorted(int(path.name[5:13]) for path in (folder / "checkpoints").glob("step_*"))
        check(left[0] == 1 and len(left) in (3, 4) and left[-1] == STEPS - 1, left)
        test.ranks(folder, 3, AUDITED | few).expect(0)
        check_same(reference, last_curve(folder, STEPS), "from step 1")
    with test.case("two ranks that contradict each other for good: both are named, and it stops"):
        _, logs = flipped(test, "two", 2, f"6 1 {ACTIVATION} 77 {BIT}{FOR_GOOD}",
                          {"audit.action": "evict"}, EXIT_WRONG_BITS)
        check("contradict each other" in logs, logs)
    with test.case("suspects that cannot be marked stop the run, for a resume would take them"):
        (test.folder / "unmarked/checkpoints/suspect.json.tmp").mkdir(parents=True)
        _, logs = flipped(test, "unmarked", 3, f"6 1 {ACTIVATION} 77 {BIT}{FOR_GOOD}",
                          {"audit.action": "evict"}, EXIT_WRONG_BITS)
        check("are suspect but could not be marked as such: remove them before" in logs, logs)
    with test.case("a suspect.json that is damaged stops a resume and is named"):
        (folder / "checkpoints/suspect.json").write_text("{]")
        ranks = test.ranks(folder, 1, AUDITED | few | {"training.steps": STEPS + 1})
        ranks.expect(64)
        check("suspect.json: cannot parse this file" in ranks.log(), ranks.log())


def evicted(test):
    nodes_evicted(test)
    with test.case("evict on one machine: the run ends, and says which rank"):
        test.environment["LOCKSTEP_FLIP_BIT"] = f"6 1 {ACTIVATION} 77 {BIT}{FOR_GOOD}"
        launch = Launch(test, "alone", "3", AUDITED | {"audit.action": "evict"})
        launch.expect(EXIT_WRONG_BITS)
        check("rank 1 exit code 77 (an audit found wrong bits)" in launch.log(),
              launch.log())


with Test("audit") as test:
    with test.case("the run without audits"):
        reference = whole_curve(test.train("reference", 1, RUN), STEPS)
    sound_runs(test, reference)
    single_errors(test)
    stopped(test, reference)
    evicted(test)
