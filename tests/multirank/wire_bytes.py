"""Bytes on the wire of a step, as counted, against what the schedule must send."""
import json

from lockstep_run import (NO_CHECKPOINTS, SMALL, Test, check, check_same, curve, flags, metrics,
                          whole_curve)

KEYS = SMALL | NO_CHECKPOINTS | {"model.n_layers": 4, "training.steps": 3,
                                "training.mixed_precision_param": "bfloat16"}
TILE, WIDTH = 4096, 2  # elements; bytes of bf16
VOCABULARY = 257  # of the byte tokenizer


def unit_tiles():
    """(embedding, block, head)"""
    dim, ffn = KEYS["model.dim"], KEYS["model.ffn_dim"]
    kv = dim * KEYS["model.n_kv_heads"] // KEYS["model.n_heads"]

    def tiles(*parameters):
        return sum(-(-elements // TILE) for elements in parameters)
    block = tiles(dim, dim * dim, dim * kv, dim * kv, dim * dim, dim, *[dim * ffn] * 3)
    return tiles(VOCABULARY * dim), block, tiles(dim, VOCABULARY * dim)


def expected(world_size):
    """{kind: bytes of a step that rank 0 receives under full_shard}"""
    embedding, block, head = unit_tiles()
    layers, slots = KEYS["model.n_layers"], KEYS["training.slots"]

    def shard_bytes(tiles):
        return -(-tiles // world_size) * TILE * WIDTH
    units = shard_bytes(embedding) + layers * shard_bytes(block) + shard_bytes(head)
    # Backward gathers again what forward freed: neither the last block, nor the head, which are
    # needed at once, nor the embedding, whose backward needs no weights.
    again = (layers - 1) * shard_bytes(block)
    gather = exchange = 0
    for first in range(0, slots, world_size):
        gather += (world_size - 1) * (units + again)
        exchange += (min(world_size, slots - first) - 1) * units
    return {"gather": gather, "exchange": exchange}


def expected_on_two_nodes():
    """{kind: {all, other_nodes}} of rank 0 of 4, two a node, full_shard, one slot a rank and round.
    Of three parts that it gathers its peer on the other node brings in one. A neighbour's slot
    comes in two parts, each slot of the other node in one."""
    ranks, near = 4, 2
    bytes_ = expected(ranks)
    slots = KEYS["training.slots"]
    units = bytes_["exchange"] // sum(min(ranks, slots - first) - 1
                                      for first in range(0, slots, ranks))
    rounds = [min(ranks, slots - first) for first in range(0, slots, ranks)]
    neighbour = sum(near for active in rounds if active > 1) * units
    crossing = sum(max(0, active - near) for active in rounds) * units
    return {"gather": {"all": bytes_["gather"], "other_nodes": bytes_["gather"] // 3},
            "exchange": {"all": neighbour + crossing, "other_nodes": crossing}}


def parameters(folder):
    return json.loads((folder / "run_args.json").read_text())["parameters"]


def counted(test, name, world_size, keys):
    """Rank 0's count, the same in each step and in the summary."""
    folder = test.train(name, world_size, KEYS | keys)
    steps = [line["wire_bytes"] for line in metrics(folder)]
    check(len(steps) == KEYS["training.steps"] and all(step == steps[0] for step in steps), steps)
    summary = json.loads((folder / "metrics.json").read_text())["wire_bytes_per_step"]
    check(summary == steps[0], summary, steps[0])
    return steps[0], parameters(folder)


def full_shard(test):
    for world_size in (2, 3):
        bytes_, model = counted(test, f"full_{world_size}", world_size, {})
        for kind, count in expected(world_size).items():
            check(bytes_[kind]["all"] == count, f"W={world_size}", kind, bytes_[kind], count)
        check(all(kind["other_nodes"] == 0 for kind in bytes_.values()), bytes_)
        # The theory, but for tiles that are not full: 2 bytes a parameter for each pass and round.
        rounds = -(-KEYS["training.slots"] // world_size)
        share = rounds * (world_size - 1) / world_size
        check(bytes_["gather"]["all"] < 1.1 * 2 * WIDTH * model * share, bytes_, model)
        full_rounds = KEYS["training.slots"] // world_size
        exchange = full_rounds * WIDTH * model * (world_size - 1) / world_size
        check(exchange <= bytes_["exchange"]["all"] < 1.5 * exchange, bytes_, exchange)
        check(0 < bytes_["other"]["all"] < 0.01 * bytes_["gather"]["all"], bytes_)


def two_nodes(test):
    """A byte comes into a node once; hybrid gathers none from the other node."""
    test.environment["LOCAL_WORLD_SIZE"] = "2"
    bytes_, _ = counted(test, "nodes", 4, {})
    one = test.train("one_node", 1, KEYS)
    check_same(curve(one), curve(test.folder / "nodes"), "two nodes of two")
    hybrid, _ = counted(test, "hybrid", 4, {"parallelism.strategy": "hybrid"})
    del test.environment["LOCAL_WORLD_SIZE"]
    for kind, count in expected_on_two_nodes().items():
        check(bytes_[kind] == count, kind, bytes_, count)
    check(hybrid["gather"]["all"] > 0 and hybrid["gather"]["other_nodes"] == 0, hybrid)
    # The second leg: from the group's two slots, and the sum that the other copy updates with.
    check(0 < hybrid["exchange"]["other_nodes"] < hybrid["exchange"]["all"], hybrid)


def slots_of_a_node(test):
    """What crosses of the gradients does not grow with the slots, where a node takes them together;
    under the cyclic map it does, and the curve is the same."""
    test.environment["LOCAL_WORLD_SIZE"] = "2"
    crossing = {}
    for slots in (4, 16):
        for slot_map in ("cyclic", "group_block"):
            name = f"{slot_map}_{slots}"
            bytes_, _ = counted(test, name, 4, {"training.slots": slots,
                                                "parallelism.slot_map": slot_map})
            crossing[slot_map, slots] = bytes_["exchange"]["other_nodes"]
        check_same(curve(test.folder / f"cyclic_{slots}"),
                   curve(test.folder / f"group_block_{slots}"), f"{slots} slots")
    del test.environment["LOCAL_WORLD_SIZE"]
    check(crossing["group_block", 16] == crossing["group_block", 4], crossing)
    check(crossing["cyclic", 16] == 4 * crossing["cyclic", 4], crossing)


def kept_in_the_node(test):
    """Parameters cross once a step, whatever its slots, with the bits of before; a rank keeps as
    much for it as the plan says. A rank is killed, and the rest, then one node, goes on."""
    test.environment["LOCAL_WORLD_SIZE"] = "2"
    node = {"parallelism.reshard_after_forward": "node", "parallelism.slot_map": "group_block"}
    units = expected(4)["exchange"] // 3  # at one round: three parts of every unit
    crossing, peak = {}, {}
    for slots in (4, 16):
        for reshard in ("world", "node"):
            name = f"{reshard}_{slots}"
            keys = node | {"training.slots": slots, "parallelism.reshard_after_forward": reshard}
            bytes_, _ = counted(test, name, 4, keys)
            check(reshard == "world" or bytes_["gather"]["other_nodes"] == units, bytes_, units)
            crossing[reshard, slots] = sum(kind["other_nodes"] for kind in bytes_.values())
            summary = json.loads((test.folder / name / "metrics.json").read_text())
            planned = json.loads(test.command("plan", test.folder / "empty.toml",
                                              *flags(KEYS | keys), "--world-size", 4,
                                              "--ranks-per-node", 2, "--model.vocab_size",
                                              VOCABULARY, "--json"))
            peak[reshard, slots] = (round(summary["peak_memory_GB"] * 1e9),
                                    planned["peak_bytes"])
        check_same(curve(test.folder / f"world_{slots}"), curve(test.folder / f"node_{slots}"),
                   f"{slots} slots")
        more = [a - b for a, b in zip(peak["node", slots], peak["world", slots])]
        print(f"       {slots} slots: bytes from the other node {crossing['world', slots]:,} and, "
              f"kept, {crossing['node', slots]:,}; for {more[0]:,} more in memory, planned "
              f"{more[1]:,}", flush=True)
        check(abs(more[0] - more[1]) <= 0.01 * more[1], peak)
    check(crossing["node", 16] <= 1.3 * crossing["node", 4], crossing)
    check(crossing["node", 4] < crossing["world", 4], crossing)
    folder = test.folder / "killed"
    keys = KEYS | node | {"training.steps": 6, "checkpoint.enable": "true",
                          "checkpoint.interval": 2, "validation.freq": 2, "validation.slots": 5}
    test.killed_at("3:step:5", folder, 4, keys)
    del test.environment["LOCAL_WORLD_SIZE"]
    run = test.ranks(folder, 3, keys)
    run.expect(0)
    check("changes nothing: all ranks are on one node" in run.log(), run.log())
    check("differ from here on" not in run.all_logs(), run.all_logs())
    check_same(whole_curve(test.train("alone_6", 1, KEYS | {"training.steps": 6,
                                                            "validation.freq": 2,
                                                            "validation.slots": 5}), 6),
               whole_curve(folder, 6), "a kill and a resume")


def three_a_node(test):
    """hybrid's groups are the nodes' here too: no gather crosses, and the losses stay."""
    test.environment["LOCAL_WORLD_SIZE"] = "3"
    hybrid, _ = counted(test, "hybrid_6", 6, {"parallelism.strategy": "hybrid"})
    del test.environment["LOCAL_WORLD_SIZE"]
    check(hybrid["gather"]["all"] > 0 and hybrid["gather"]["other_nodes"] == 0, hybrid)
    check(0 < hybrid["exchange"]["other_nodes"] < hybrid["exchange"]["all"], hybrid)
    one = test.train("one", 1, KEYS)
    check_same(curve(one), curve(test.folder / "hybrid_6"), "hybrid on two nodes of three")


def replicated(test):
    """ddp gathers no parameters; its gradients travel in bf16 to their owners and, summed, in
    fp32 to all."""
    bytes_, _ = counted(test, "ddp", 2, {"parallelism.strategy": "ddp"})
    check(bytes_["gather"]["all"] == 0, bytes_)
    embedding, block, head = unit_tiles()
    shards = sum(-(-tiles // 2) for tiles in [embedding, head] + [block] * KEYS["model.n_layers"])
    summed = shards * TILE * 4
    check(bytes_["exchange"]["all"] == expected(2)["exchange"] + summed, bytes_, summed)


def alone(test):
    bytes_, _ = counted(test, "alone", 1, {})
    check(all(kind["all"] == 0 for kind in bytes_.values()), bytes_)


with Test("wire_bytes") as test:
    (test.folder / "empty.toml").write_text("")
    for case in (full_shard, two_nodes, slots_of_a_node, kept_in_the_node, three_a_node, replicated,
                 alone):
        with test.case(case.__name__.replace("_", " ")):
            case(test)
