"""Adapters on a Hugging Face folder: the same bits for any number of ranks and strategy, over a
kill and a resume; checkpoints that hold adapters alone; both exports; and what is refused.

tests/reference/lora_test.py has PEFT's opinion.
"""
import json

from lockstep_run import (EXIT_CONFIG, TINY, Test, check, check_same, committed, flags, metrics,
                          tail, whole_curve)

STEPS = 12
KEYS = TINY | {"training.steps": STEPS, "checkpoint.interval": 3, "checkpoint.keep_latest_k": 0,
               "lora.rank": 4, "lora.dropout": 0.1, "optimizer.lr": 1e-2, "validation.freq": 6,
               "validation.slots": 2, "lora.target_modules": "q_proj,v_proj,o_proj,gate_proj"}
WIDTHS = {"q_proj": (64, 64), "v_proj": (64, 32), "o_proj": (64, 64), "gate_proj": (64, 176)}
ADAPTERS = 2 * 4 * sum(sum(pair) for pair in WIDTHS.values())  # parameters
BF16 = {"training.mixed_precision_param": "bfloat16"}


def without_model(keys):
    return {key: value for key, value in keys.items() if not key.startswith("model.")}


def make_folder(test):
    run = test.train("source", 1, TINY)
    folder = test.folder / "hf"
    test.command("export", run, folder)
    return run, folder


def same_bits(test, keys, name):
    with test.case(f"{name}: the same bits on 1, 2 and 3 ranks"):
        reference = test.train(f"{name}_one", 1, keys)
        bits = whole_curve(reference, STEPS)
        losses = [line["loss"] for line in metrics(reference)]
        check(losses[-1] < losses[0], f"nothing is learnt: {losses}")
        for strategy, world_size in (("full_shard", 2), ("full_shard", 3), ("ddp", 2), ("ddp", 3)):
            got = test.train(f"{name}_{strategy}_{world_size}", world_size,
                             keys | {"parallelism.strategy": strategy})
            check_same(bits, whole_curve(got, STEPS), f"{strategy} {world_size}")
            check(metrics(got)[-1]["validation_loss"] == metrics(reference)[-1]["validation_loss"],
                  "another validation loss")
        return reference, got


def killed(test, keys, name, reference):
    with test.case(f"{name}: killed twice, and resumed on other ranks"):
        folder = test.folder / f"{name}_killed"
        for world_size, strategy, moment in ((3, "full_shard", "2:committed:3"),
                                             (2, "ddp", "0:update:8")):
            test.killed_at(moment, folder, world_size, keys | {"parallelism.strategy": strategy})
        run = test.ranks(folder, 1, keys | {"parallelism.strategy": "single"})
        run.expect(0)
        check("resumed from" in run.log() and "differ from here on" not in run.log(),
              tail(run.log(), 60))
        check_same(whole_curve(reference, STEPS), whole_curve(folder, STEPS), "killed")


def exports(test, run, other):
    with test.case("a checkpoint holds the adapters, m and v"):
        newest = run / "checkpoints" / committed(run)[0]
        listed = json.loads(test.command("checkpoint", "inspect", newest, "--json"))
        names = {tensor["name"] for tensor in listed["tensors"]}
        check(len(names) == 2 * 2 * len(WIDTHS) and all(".lora_" in name for name in names), names)
        arguments = json.loads((run / "run_args.json").read_text())
        check(arguments["trained_parameters"] == ADAPTERS, arguments["trained_parameters"])
        check(arguments["parameters"] > 20 * ADAPTERS, arguments["parameters"])
    with test.case("exports do not depend on the ranks"):
        for words, file in (([], "model.safetensors"), (["--lora"], "adapter_model.safetensors")):
            folders = [test.folder / f"{name}{len(words)}" for name in ("a", "b")]
            for source, folder in zip((run, other), folders):
                test.command("export", *words, source, folder)
            check((folders[0] / file).read_bytes() == (folders[1] / file).read_bytes(), file)
        said = json.loads((folders[0] / "adapter_config.json").read_text())
        check(said["r"] == 4 and said["target_modules"] == list(WIDTHS), said)
        said = test.command("generate", run, "--prompt", "the", "--tokens", 4)
        check(said.strip(), "generate says nothing")


def refusals(test, source, run, folder):
    def refused(keys, *words):
        config = test.folder / "empty.toml"
        config.write_text("")
        said = test.command("train", config, *flags({"data.path": test.tokens()} | keys),
                            status=EXIT_CONFIG)
        for word in words:
            check(word in said, f"nothing about {word} in\n{tail(said)}")
    with test.case("what cannot be is said"):
        keys = without_model(KEYS) | {"model.hf_assets_path": folder,
                                      "job.dump_folder": test.folder / "refused"}
        refused(keys | {"lora.target_modules": "q_prj"}, "q_prj", "did you mean q_proj")
        refused(keys | {"checkpoint.initial_load_path": source}, "lockstep export", str(source))
        refused(TINY | {"model.name": "linear", "lora.rank": 2}, "linear")
        said = test.command("export", "--lora", source, test.folder / "none", status=EXIT_CONFIG)
        check("lora.rank" in said, said)
        said = test.command("export", "--lora", run, test.folder / "a1", status=EXIT_CONFIG)
        check("has an adapter_config.json" in said, said)
        refused(keys | {"lora.rank": 0}, "lora.target_modules", "lora.rank is 0")
        refused(keys | {"lora.rank": -1}, "lora.rank = -1")
        adapted = test.ranks(source, 1, TINY | {"lora.rank": 2, "training.steps": 30})
        adapted.expect(EXIT_CONFIG)
        check("lora_A" in adapted.log(), tail(adapted.log()))
    with test.case("a resume with other adapters, or with none, names them"):
        more = keys | {"training.steps": STEPS + 3}
        none = {key: value for key, value in more.items() if not key.startswith("lora.")}
        for other, word in ((none, "16 only in the checkpoint: model.layers.0"),
                            (more | {"lora.rank": 2}, "[2, 64]"),
                            (more | {"lora.target_modules": "q_proj,v_proj"},
                             "8 only in the checkpoint: model.layers.0")):
            ranks = test.ranks(run, 2, other | {"job.dump_folder": run})
            ranks.expect(EXIT_CONFIG)
            check(word in ranks.log(), tail(ranks.log()))
    with test.case("random weights are a base as well, that no folder has"):
        random = test.train("random", 2, KEYS | {"training.steps": 2})
        said = test.command("export", random, test.folder / "none", status=EXIT_CONFIG)
        check("--lora" in said, said)
        test.command("export", "--lora", random, test.folder / "random_adapters")


with Test("lora") as test:
    source, folder = make_folder(test)
    keys = without_model(KEYS) | {"model.hf_assets_path": folder}
    run, other = same_bits(test, keys, "fp32")
    killed(test, keys, "fp32", run)
    narrow, _ = same_bits(test, keys | BF16, "bf16")
    killed(test, keys | BF16, "bf16", narrow)
    exports(test, run, other)
    refusals(test, source, run, folder)
