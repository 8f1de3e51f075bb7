"""A run without checkpoints of its own starts from another run's: weights alone, or Adam's state as
well, without what is excluded, at any world size; another model is refused with a diff."""
from lockstep_run import (EXIT_CONFIG, EXIT_PEER_LOST, TINY, Test, check, check_same, committed,
                          curve, tail, whole_curve)

STEPS = 6
MANY = 257  # ranks whose manifest is in parts
KEYS = TINY | {"training.steps": STEPS, "lr_scheduler.total_steps": STEPS,
               "checkpoint.interval": 3}
# What else the config says, and what the message must hold; None: it is no error.
REFUSED = (
    ({"model.n_layers": 3}, ["missing from the checkpoint: param/model.layers.2."]),
    ({"model.n_layers": 1}, None),  # a part of a checkpoint is enough
    ({"model.ffn_dim": 192}, ["with another shape", "the model has [192, 64], the checkpoint"]),
    ({"checkpoint.exclude_from_loading": "head.*"}, ["\"head.*\" matches no tensor"]),
    ({"checkpoint.initial_load_path": "nowhere"}, ["nowhere"]),
)


def tuned(test, name, world_size, keys):
    folder = test.train(name, world_size, KEYS | {"training.seed": 7} | keys)
    return whole_curve(folder, STEPS)


def refused(test, name, keys, words):
    folder = test.folder / name
    run = test.ranks(folder, 2, KEYS | keys)
    statuses = run.wait()
    if words is None:
        check(set(statuses) == {0}, statuses, tail(run.all_logs()))
        return
    check(EXIT_CONFIG in statuses and set(statuses) <= {EXIT_CONFIG, EXIT_PEER_LOST},
          statuses, tail(run.all_logs()))
    for word in words:
        check(word in run.all_logs(), f"nothing about {word} in", tail(run.all_logs()))
    check(not committed(folder) and not curve(folder), "something was trained")


with Test("initial_load") as test:
    source = test.train("source", 2, KEYS)
    start = {"checkpoint.initial_load_path": source}
    optimizer = {"checkpoint.initial_load_model_only": "false"}
    with test.case("weights alone, the same bits at any world size"):
        weights = tuned(test, "weights_1", 1, start)
        check_same(weights, tuned(test, "weights_2", 2, start), "W=1 and W=2")
        check_same(weights, tuned(test, "weights_ddp", 2, start | {"parallelism.strategy": "ddp"}),
                   "full_shard and ddp")
        check(weights != tuned(test, "scratch", 1, {}), "it did not start from there")
    with test.case("from what was exported and imported"):
        test.command("checkpoint", "export", source, test.folder / "exported")
        for name, flags, keys in (("plain", ("--world-size", 3), {}),
                                  ("zeros", ("--with-optimizer", "zeros"), optimizer)):
            folder = test.folder / name
            test.command("checkpoint", "import", test.folder / "exported", folder, *flags)
            imported = keys | {"checkpoint.initial_load_path": folder}
            check_same(weights, tuned(test, f"{name}_run", 1, imported), name)
    with test.case("from a resharded checkpoint, with the optimizer"):
        with_adam = tuned(test, "adam", 1, start | optimizer)
        for ranks in (3, MANY):
            folder = test.folder / f"resharded_{ranks}"
            test.command("checkpoint", "reshard", source, folder, "--world-size", ranks)
            resharded = optimizer | {"checkpoint.initial_load_path": folder}
            check_same(with_adam, tuned(test, f"adam_resharded_{ranks}", 2, resharded),
                       f"saved and resharded to {ranks}")
        check(with_adam != weights, "Adam's state was not taken")
    with test.case("without what is excluded"):
        head = start | {"checkpoint.exclude_from_loading": "lm_head.*"}
        excluded = tuned(test, "excluded", 2, head)
        check(excluded not in (weights, curve(test.folder / "scratch")), "nothing was left out")
    with test.case("its own checkpoints come first"):
        longer = KEYS | {"training.seed": 7, "training.steps": STEPS + 1}
        run = test.ranks(test.folder / "weights_2", 1, longer | start)
        run.expect(0)
        check("resumed from" in run.log() and "starts from" not in run.log(), tail(run.log()))
    with test.case("a manifest in parts is resumed from"):
        many = test.folder / "many"
        test.command("checkpoint", "reshard", test.folder / "weights_1", many / "checkpoints",
                     "--world-size", MANY)
        check(list(many.glob("checkpoints/step_*/manifest_*.json")), "it is in one")
        test.ranks(many, 2, longer | start).expect(0)
        last = {STEPS + 1: curve(test.folder / "weights_2")[STEPS + 1]}
        check(curve(many) == last, "other losses than from one manifest")
    for number, (keys, words) in enumerate(REFUSED):
        with test.case(f"refused: {keys}"):
            refused(test, f"refused_{number}", start | keys, words)
