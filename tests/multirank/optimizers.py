"""What every optimizer must keep on real ranks: one curve for every spread of the ranks, and after
kills on other world sizes as well."""
import json
import struct

from lockstep_run import NO_CHECKPOINTS, check, check_same, committed, metrics, whole_curve

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


def one_curve(test, keys, precision, steps):
    """A case for one rank and for each spread; the curve that all of them have."""
    keys = keys | {"training.mixed_precision_param": precision} | NO_CHECKPOINTS
    with test.case(f"it learns, {precision}"):
        alone = test.train(f"alone_{precision}", 1, keys | {"parallelism.strategy": "single"})
        reference = whole_curve(alone, steps)
        lines = metrics(alone)
        check(lines[-1]["loss"] < lines[0]["loss"] - 0.5, lines[0]["loss"], lines[-1]["loss"])
    for name, world_size, more in SPREADS:
        with test.case(f"{name}, {precision}"):
            folder = test.train(f"{name} {precision}".replace(" ", "_"), world_size, keys | more)
            check_same(reference, whole_curve(folder, steps), name)
    return reference


def killed_and_resumed(test, keys):
    """3 ranks, of which one is killed in the update of a step; then 1, and 2 to the end."""
    folder = test.folder / "killed"
    test.killed_at("1:update:7", folder, 3, keys)
    test.killed_at("0:step:11", folder, 1, keys | {"parallelism.strategy": "ddp"})
    test.ranks(folder, 2, keys).expect(0)
    check({line["world_size"] for line in metrics(folder)} == {1, 2, 3}, "not all of them trained")
    return folder


def exported(test, folder, out, *words):
    """{tensor: its entry in the header} of an export of all kinds of state."""
    test.command("checkpoint", "export", folder, out, "--kind", "all", *words)
    with open(out / "model.safetensors", "rb") as file:
        header = json.loads(file.read(struct.unpack("<Q", file.read(8))[0]))
    return {name: entry for name, entry in header.items() if name != "__metadata__"}


def tools_know(test, folder):
    """`checkpoint verify`, `reshard` and `diff` of the newest one, which is returned."""
    newest = folder / "checkpoints" / committed(folder)[0]
    test.command("checkpoint", "verify", newest)
    test.command("checkpoint", "reshard", newest, test.folder / "resharded", "--world-size", 3)
    test.command("checkpoint", "diff", newest, test.folder / "resharded")
    return newest
