"""AdamW with moments in bf16 on real ranks: one curve for every world size and strategy, after
kills on other world sizes as well; how far it is from fp32's; how large its checkpoints are, what
the tools make of them, and who may not resume."""
import json
import math

from lockstep_run import (EXIT_CONFIG, NO_CHECKPOINTS, TINY, Test, check, check_same, committed,
                          first_difference, metrics, whole_curve)
from optimizers import exported, killed_and_resumed, one_curve, tools_know

STEPS, SAVE, LONG = 16, 4, 300
BF16 = TINY | {"training.steps": STEPS, "optimizer.state_dtype": "bfloat16"}
SAVING = {"checkpoint.interval": SAVE, "checkpoint.keep_latest_k": 0, "checkpoint.codec": "none"}


def stored_bytes(folder):
    newest = folder / "checkpoints" / committed(folder)[0]
    return sum(path.stat().st_size for path in newest.glob("rank_*.h5"))


def exported_types(test, folder, *words):
    entries = exported(test, folder, test.folder / f"exported{len(words)}", *words)
    return {entry["dtype"] for entry in entries.values()}


def refused(test, folder, keys, *said):
    run = test.ranks(folder, 2, keys | SAVING | {"training.steps": STEPS + 4,
                                                 "lr_scheduler.total_steps": STEPS})
    run.expect(EXIT_CONFIG)
    for part in said:
        check(part in run.log(), part, run.log())


with Test("bf16_moments") as test:
    for precision in ("float32", "bfloat16"):
        keys = BF16 | {"training.mixed_precision_param": precision}
        reference = one_curve(test, keys, precision, STEPS)
    wide_keys = keys | {"optimizer.state_dtype": "float32"}
    with test.case("kills, and resumes on other world sizes"):
        folder = killed_and_resumed(test, keys | SAVING)
        check_same(reference, whole_curve(folder, STEPS), "after kills")
    with test.case("a resume from snapshots in memory"):
        in_memory = test.folder / "in_memory"
        (test.folder / "shm").mkdir()
        memory = {"checkpoint.interval": 0, "checkpoint.memory_interval": 2,
                  "checkpoint.memory_folder": test.folder / "shm"}
        test.killed_at("1:snapshot:6", in_memory, 2, keys | memory)
        again = test.ranks(in_memory, 3, keys | memory)
        again.expect(0)
        check("resumed from memory (" in again.log(), again.log())
        check_same(reference, whole_curve(in_memory, STEPS), "from memory")
    with test.case("a replay finds the same bits"):
        printed = test.command("replay", folder, "--from", SAVE + 1)
        check("differ" not in printed, printed)
    with test.case("a checkpoint has 8 bytes of a parameter in place of 12"):
        wide = test.train("wide", 2, wide_keys | SAVING)
        check(first_difference(reference, whole_curve(wide, STEPS)), "the key does nothing")
        ratio = stored_bytes(folder) / stored_bytes(wide)
        print(f"       {stored_bytes(folder):,} bytes in place of {stored_bytes(wide):,}",
              flush=True)
        check(0.66 < ratio < 0.70, ratio)
    with test.case("the tools know it"):
        newest = tools_know(test, folder)
        inspected = json.loads(test.command("checkpoint", "inspect", newest, "--json"))
        check(inspected["format_version"] == 2, inspected["format_version"])
        check(inspected["tensors"][0]["dtype"] == {"adam_m": "bfloat16", "adam_v": "bfloat16"},
              inspected["tensors"][0])
        check(exported_types(test, newest) == {"F32"}, "exported as fp32")
        check(exported_types(test, newest, "--dtype", "bf16") == {"BF16"}, "exported as bf16")
    with test.case("no resume with moments of the other type"):
        refused(test, folder, wide_keys, "keeps AdamW's moments in bfloat16 but the config says "
                "optimizer.state_dtype = float32: give --optimizer.state_dtype bfloat16")
        refused(test, wide, keys, "keeps AdamW's moments in float32 but the config says "
                "optimizer.state_dtype = bfloat16: give --optimizer.state_dtype float32")
    begin = {"checkpoint.enable": "true", "checkpoint.interval": 0, "training.steps": 2}
    with test.case("the weights alone begin a run with the other"):
        begun = test.train("begun", 2, keys | NO_CHECKPOINTS | begin
                           | {"checkpoint.initial_load_path": wide})
        check(len(metrics(begun)) == 2, metrics(begun))
    with test.case("with its moments they do not"):
        run = test.ranks(test.folder / "not_begun", 2, keys | NO_CHECKPOINTS | begin | {
            "checkpoint.initial_load_path": wide, "checkpoint.initial_load_model_only": "false"})
        run.expect(EXIT_CONFIG)
        check("with another number type (optimizer.state_dtype): adam_m/" in run.log(), run.log())
    with test.case(f"{LONG} steps are those of fp32, to a few thousandths"):
        long = {"training.steps": LONG, "parallelism.strategy": "single"}
        curves = [[line["loss"] for line in metrics(
            test.train(f"long_{keys['optimizer.state_dtype']}", 1, keys | NO_CHECKPOINTS | long))]
            for keys in (wide_keys, wide_keys | {"optimizer.state_dtype": "bfloat16"})]
        apart = [abs(b - a) / a for a, b in zip(*curves)]
        tail = [sum(curve[-50:]) / 50 for curve in curves]
        print(f"       loss {curves[0][0]:.4f} to {curves[0][-1]:.4f}; relative difference at most "
              f"{max(apart):.2e}, last {apart[-1]:.2e}, mean of the last 50 losses {tail[0]:.5f} "
              f"and {tail[1]:.5f}", flush=True)
        check(all(math.isfinite(loss) for curve in curves for loss in curve), "not finite")
        check(max(apart) < 0.02, max(apart))
        check(abs(tail[1] - tail[0]) / tail[0] < 0.005, tail)
