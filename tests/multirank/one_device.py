"""Several ranks on one device, and one: who computes a slot, where the state lies and a kill do not
move a bit. A step of tools/first_light, which runs it on a GPU too.

  one_device.py [large]    large: heads of 128 features, 2,048 tokens, a vocabulary of 32,000
"""
import json
import sys

from lockstep_run import (NO_CHECKPOINTS, TINY, Test, check, check_same, first_difference, metrics,
                          whole_curve)

LARGE = {"model.dim": 1024, "model.n_layers": 4, "model.n_heads": 8, "model.n_kv_heads": 4,
         "model.ffn_dim": 2816, "model.vocab_size": 32000, "training.seq_len": 2048}
STEPS = 6
BF16 = {"training.mixed_precision_param": "bfloat16"}
KEYS = TINY | {"training.steps": STEPS} | (LARGE if sys.argv[1:] == ["large"] else {})
SINGLE = {"parallelism.strategy": "single"}
# name, world size, keys: the bits of one rank in bf16
SAME = (
    ("once more", 1, SINGLE),
    ("ddp", 2, {"parallelism.strategy": "ddp"}),
    ("ddp, block", 2, {"parallelism.strategy": "ddp", "parallelism.slot_map": "block"}),
    ("full_shard", 2, {}),
    ("full_shard", 3, {}),
    ("shard_grad_op", 2, {"parallelism.strategy": "shard_grad_op"}),
    ("hybrid", 2, {"parallelism.strategy": "hybrid",
                   "parallelism.data_parallel_shard_degree": 1}),
    ("offload", 2, {"training.enable_cpu_offload": "true"}),
    ("recomputed activations", 1, SINGLE | {"activation_checkpoint.mode": "full"}),
)
KILLED_AT = "1:committed:2"


def run(test, name, world_size, keys):
    """The curve of a whole run, and the device that it names."""
    folder = test.train(f"{name} {world_size}".replace(" ", "_"), world_size,
                        KEYS | NO_CHECKPOINTS | keys)
    lines = metrics(folder)
    check(lines[-1]["loss"] < lines[0]["loss"], f"{name}: it does not learn")
    device = json.loads((folder / "metrics.json").read_text())["device_model"]
    print(f"       {name} W={world_size}: loss {lines[-1]['loss']:.5f}, on {device}", flush=True)
    return whole_curve(folder, STEPS)


def killed_and_resumed(test, reference):
    folder, saving = test.folder / "killed", KEYS | BF16 | {"checkpoint.interval": 2}
    test.killed_at(KILLED_AT, folder, 2, saving)
    again = test.ranks(folder, 1, saving)
    again.expect(0)
    check("resumed from" in again.log(), "it started over")
    check_same(reference, whole_curve(folder, STEPS), "killed and resumed")


with Test("one_device") as test:
    reference = {}
    with test.case("one rank"):
        reference = run(test, "one rank", 1, BF16 | SINGLE)
    for name, world_size, keys in SAME:
        with test.case(f"{name}, W={world_size}"):
            check_same(reference, run(test, name, world_size, BF16 | keys), name)
    with test.case("killed, resumed on one rank"):
        killed_and_resumed(test, reference)
    # Else equal curves would say nothing.
    with test.case("fp32 is another curve, and full_shard of two ranks has its bits"):
        single = run(test, "fp32", 1, SINGLE)
        check(first_difference(reference, single), "bf16 has the bits of fp32")
        check_same(single, run(test, "fp32 full_shard", 2, {}), "fp32")
