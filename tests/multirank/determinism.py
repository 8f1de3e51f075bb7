"""Losses and gradient norms of 20 steps are the same bits for every world size and strategy."""
import json

from lockstep_run import (NO_CHECKPOINTS, TINY, WORDS, Test, check, check_same, first_difference,
                          metrics, tail, whole_curve)

BASE = TINY | NO_CHECKPOINTS
STEPS = BASE["training.steps"]
ODD = {"model.dim": 36, "model.n_heads": 3, "model.n_kv_heads": 1, "model.n_layers": 3,
       "model.ffn_dim": 100, "training.seq_len": 37, "training.local_batch_size": 3}
# name, keys, world sizes
SHAPES = (
    ("tied embeddings", {"model.tie_word_embeddings": "true"}, (2, 3, 4)),
    ("tied, bfloat16", {"model.tie_word_embeddings": "true",
                        "training.mixed_precision_param": "bfloat16"}, (2, 3)),
    ("odd dimensions", ODD, (2, 3, 4)),
    ("odd dimensions, tied", ODD | {"model.tie_word_embeddings": "true"}, (3,)),
    ("linear layers", {"model.name": "linear"}, (2,)),
    ("more ranks than slots", {"training.slots": 3}, (2, 4)),
    ("one slot", {"training.slots": 1}, (2, 3)),
    ("no prefetch", {"parallelism.forward_prefetch": "false",
                     "parallelism.backward_prefetch": "NONE"}, (2, 3)),
    ("no clipping", {"training.max_norm": 0}, (2,)),
)
PACKED = (
    ("packed", {}, (2, 3)),
    ("packed, bfloat16", {"training.mixed_precision_param": "bfloat16", "training.slots": 5},
     (3,)),
    ("packed, whole scores", {"model.fused_attention": "false"}, (2,)),
)
# Real processes over Gloo; tests/unit/core/strategies_test.cc has the grid. name, keys, world sizes
SPREADS = (
    ("grad_op", {"parallelism.strategy": "shard_grad_op"}, (2, 3)),
    ("hybrid", {"parallelism.strategy": "hybrid", "parallelism.data_parallel_shard_degree": 2},
     (3, 4)),
    ("block", {"parallelism.slot_map": "block"}, (3,)),
    ("ddp block", {"parallelism.strategy": "ddp", "parallelism.slot_map": "block"}, (3,)),
    ("one unit", {"parallelism.wrap_policy": "none"}, (2,)),
)


def packed_records(test):
    """A folder of short documents, packed."""
    words = test.random.choices(WORDS, k=6000)
    lines = [json.dumps({"text": " ".join(words[20 * i:20 * i + 1 + i * i % 19])})
             for i in range(300)]
    (test.folder / "records.jsonl").write_text("\n".join(lines))
    out = test.folder / "packed"
    test.command("prepare", test.folder / "records.jsonl", "--text-field", "text", "--pack",
                 BASE["training.seq_len"], "--out", out)
    return out


def run(test, name, world_size, keys):
    keys = BASE | keys
    folder = test.folder / name.replace(" ", "_").replace(",", "")
    ranks = test.ranks(folder, world_size, keys)
    ranks.expect(0)
    slots = keys["training.slots"]
    places = -(-slots // world_size) * world_size
    words = f"{places - slots} of {world_size} ranks compute nothing"
    words += ": a step" if world_size > slots else " in the last of the "
    much = world_size > slots or (places - slots) / places > 0.2
    check((words in ranks.log()) == ("compute nothing" in ranks.log()) == much,
          f"{name}: ranks without a slot are not said as they are\n{tail(ranks.log())}")
    check((f"--training.slots {places} keeps all of them busy" in ranks.log()) == much,
          f"{name}: it is not said what keeps them busy")
    lines = metrics(folder)
    check({line["world_size"] for line in lines} == {world_size}, f"{name}: other world sizes")
    check(lines[-1]["loss"] < lines[0]["loss"], f"{name}: it does not learn")
    return whole_curve(folder, STEPS)


with Test("determinism") as test:
    curves = {}
    for precision in ("float32", "bfloat16"):
        for slots in (4, 6):
            keys = {"training.mixed_precision_param": precision, "training.slots": slots}
            name = f"{precision} V={slots}"
            with test.case(f"{name} single W=1"):
                curves[name] = run(test, f"{name} single", 1, keys | {
                    "parallelism.strategy": "single"})
            for strategy in ("ddp", "full_shard"):
                for world_size in (1, 2, 3, 4):
                    with test.case(f"{name} {strategy} W={world_size}"):
                        got = run(test, f"{name} {strategy} {world_size}", world_size,
                                  keys | {"parallelism.strategy": strategy})
                        check_same(curves[name], got, f"{name} {strategy} W={world_size}")
    # Else equal curves would say nothing.
    with test.case("another precision and another V give other curves"):
        names = list(curves)
        check(len(names) == 4, "some of the runs failed")
        for i, one in enumerate(names):
            for other in names[i + 1:]:
                check(first_difference(curves[one], curves[other]), f"{one} equals {other}")
    for name, keys, world_sizes in SPREADS:
        with test.case(f"{name} {world_sizes}"):
            for world_size in world_sizes:
                got = run(test, f"{name} {world_size}", world_size, {
                    "training.slots": 6, "training.mixed_precision_param": "bfloat16"} | keys)
                check_same(curves["bfloat16 V=6"], got, f"{name} W={world_size}")
    packed = {"data.path": packed_records(test)}
    shapes = SHAPES + tuple((name, packed | keys, sizes) for name, keys, sizes in PACKED)
    for name, keys, world_sizes in shapes:
        with test.case(f"{name} W=1 and {world_sizes}"):
            reference = run(test, name, 1, keys | {"parallelism.strategy": "single"})
            for world_size, strategy in [(w, "full_shard") for w in world_sizes] + [(2, "ddp")]:
                got = run(test, f"{name} {strategy} {world_size}", world_size,
                          keys | {"parallelism.strategy": strategy})
                check_same(reference, got, f"{name} {strategy} W={world_size}")
    with test.case("documents that see each other give another curve"):
        masked = run(test, "masked", 1, packed)
        unmasked = run(test, "unmasked", 1, packed | {"data.document_mask": "false"})
        check(first_difference(masked, unmasked), "the mask changes nothing")
