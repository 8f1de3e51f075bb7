"""Muon on real ranks: one curve for every world size and strategy, after a kill on another world
size as well; a replay finds its bits again; what its checkpoints hold, and who may not resume."""
from lockstep_run import (EXIT_CONFIG, NO_CHECKPOINTS, TINY, Test, check, check_same,
                          first_difference, metrics, whole_curve)
from optimizers import exported, killed_and_resumed, one_curve, tools_know

STEPS, SAVE = 16, 4
MUON = TINY | {"training.steps": STEPS, "optimizer.name": "Muon"}
SAVING = {"checkpoint.interval": SAVE, "checkpoint.keep_latest_k": 0, "checkpoint.codec": "none"}


def check_kinds(names):
    matrix, norm = "model.layers.1.mlp.up_proj.weight", "model.layers.1.input_layernorm.weight"
    kinds = {name: {key.split("/")[0] for key in names if key.endswith(f"/{name}")}
             for name in (matrix, norm, "model.embed_tokens.weight", "lm_head.weight")}
    check(kinds.pop(matrix) == {"param", "momentum"}, kinds)
    for name, found in kinds.items():
        check(found == {"param", "adam_m", "adam_v"}, f"{name}: {found}")


with Test("muon") as test:
    for precision in ("float32", "bfloat16"):
        keys = MUON | {"training.mixed_precision_param": precision}
        reference = one_curve(test, keys, precision, STEPS)
    with test.case("another momentum is another curve"):
        other = test.train("momentum", 1, keys | NO_CHECKPOINTS | {"optimizer.momentum": 0.9})
        check(first_difference(reference, whole_curve(other, STEPS)), "the key does nothing")
    with test.case("kills, and resumes on other world sizes"):
        folder = killed_and_resumed(test, keys | SAVING)
        check_same(reference, whole_curve(folder, STEPS), "after kills")
    with test.case("a replay finds the same bits"):
        printed = test.command("replay", folder, "--from", SAVE + 1)
        check("differ" not in printed, printed)
    with test.case("a checkpoint has a momentum for Muon's, and Adam's moments for the rest"):
        check_kinds(exported(test, folder, test.folder / "exported").keys())
        tools_know(test, folder)
    with test.case("no resume under the other optimizer"):
        refused = test.ranks(folder, 2, keys | SAVING | {"optimizer.name": "AdamW",
                                                        "training.steps": STEPS + 4,
                                                        "lr_scheduler.total_steps": STEPS})
        refused.expect(EXIT_CONFIG)
        check("is trained by optimizer.name = Muon but the config says AdamW" in refused.log(),
              refused.log())
    with test.case("the weights alone begin a run of the other optimizer"):
        begun = test.train("begun", 2, keys | NO_CHECKPOINTS | {
            "optimizer.name": "AdamW", "checkpoint.enable": "true", "checkpoint.interval": 0,
            "checkpoint.initial_load_path": folder, "training.steps": 2})
        check(len(metrics(begun)) == 2, metrics(begun))
