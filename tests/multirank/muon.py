"""Muon on real ranks: one curve for every world size and strategy, after a kill on another world
size as well; a replay finds its bits again; what its checkpoints hold, and who may not resume."""
import json
import struct

from lockstep_run import (EXIT_CONFIG, NO_CHECKPOINTS, TINY, Test, check, check_same, committed,
                          first_difference, metrics, whole_curve)

STEPS, SAVE = 16, 4
MUON = TINY | {"training.steps": STEPS, "optimizer.name": "Muon"}
SAVING = {"checkpoint.interval": SAVE, "checkpoint.keep_latest_k": 0, "checkpoint.codec": "none"}
SPREADS = (
    ("full_shard 2", 2, {}),
    ("full_shard 3", 3, {}),
    ("ddp", 2, {"parallelism.strategy": "ddp"}),
    ("grad_op", 3, {"parallelism.strategy": "shard_grad_op"}),
    ("hybrid", 4, {"parallelism.strategy": "hybrid", "parallelism.data_parallel_shard_degree": 2}),
    ("block", 3, {"parallelism.slot_map": "block"}),
    ("one unit", 2, {"parallelism.wrap_policy": "none"}),
    ("offload", 2, {"training.enable_cpu_offload": "true"}),
)


def killed_and_resumed(test, keys):
    """3 ranks, of which one is killed in the update of a step; then 1, and 2 to the end."""
    folder = test.folder / "killed"
    test.killed_at("1:update:7", folder, 3, keys | SAVING)
    test.killed_at("0:step:11", folder, 1, keys | SAVING | {"parallelism.strategy": "ddp"})
    test.ranks(folder, 2, keys | SAVING).expect(0)
    check({line["world_size"] for line in metrics(folder)} == {1, 2, 3}, "not all of them trained")
    return folder


def exported_names(test, folder):
    out = test.folder / "exported"
    test.command("checkpoint", "export", folder, out, "--kind", "all")
    with open(out / "model.safetensors", "rb") as file:
        header = json.loads(file.read(struct.unpack("<Q", file.read(8))[0]))
    return header.keys() - {"__metadata__"}


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
        with test.case(f"it learns, {precision}"):
            alone = test.train(f"alone_{precision}", 1,
                               keys | NO_CHECKPOINTS | {"parallelism.strategy": "single"})
            reference = whole_curve(alone, STEPS)
            lines = metrics(alone)
            check(lines[-1]["loss"] < lines[0]["loss"] - 0.5, lines[0]["loss"], lines[-1]["loss"])
        for name, world_size, more in SPREADS:
            with test.case(f"{name}, {precision}"):
                folder = test.train(f"{name} {precision}".replace(" ", "_"), world_size,
                                    keys | NO_CHECKPOINTS | more)
                check_same(reference, whole_curve(folder, STEPS), name)
    with test.case("another momentum is another curve"):
        other = test.train("momentum", 1, keys | NO_CHECKPOINTS | {"optimizer.momentum": 0.9})
        check(first_difference(reference, whole_curve(other, STEPS)), "the key does nothing")
    with test.case("kills, and resumes on other world sizes"):
        folder = killed_and_resumed(test, keys)
        check_same(reference, whole_curve(folder, STEPS), "after kills")
    with test.case("a replay finds the same bits"):
        printed = test.command("replay", folder, "--from", SAVE + 1)
        check("differ" not in printed, printed)
    with test.case("a checkpoint has a momentum for Muon's, and Adam's moments for the rest"):
        check_kinds(exported_names(test, folder))
        newest = folder / "checkpoints" / committed(folder)[0]
        test.command("checkpoint", "verify", newest)
        test.command("checkpoint", "reshard", newest, test.folder / "resharded", "--world-size", 3)
        test.command("checkpoint", "diff", newest, test.folder / "resharded")
    with test.case("no resume under the other optimizer"):
        refused = test.ranks(folder, 2, keys | SAVING | {"optimizer.name": "AdamW",
                                                        "training.steps": STEPS + 4,
                                                        "lr_scheduler.total_steps": STEPS})
        refused.expect(EXIT_CONFIG)
        check("is trained by optimizer.name = Muon and the config says AdamW" in refused.log(),
              refused.log())
    with test.case("the weights alone begin a run of the other optimizer"):
        begun = test.train("begun", 2, keys | NO_CHECKPOINTS | {
            "optimizer.name": "AdamW", "checkpoint.enable": "true", "checkpoint.interval": 0,
            "checkpoint.initial_load_path": folder, "training.steps": 2})
        check(len(metrics(begun)) == 2, metrics(begun))
