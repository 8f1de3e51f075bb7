"""A run from a Hugging Face folder: the same bits on any number of ranks and over a resume, and
every fault of a folder said with exit status 64 before a worker starts.

The folders are Lockstep's own exports; tests/reference/hf_parity_test.py has transformers' opinion.
"""
import json
import shutil
import struct

from lockstep_run import (EXIT_CONFIG, EXIT_PEER_LOST, TINY, Test, check, check_same, flags,
                          metrics, tail, whole_curve)

STEPS = 6
KEYS = TINY | {"training.steps": STEPS, "lr_scheduler.total_steps": STEPS,
               "checkpoint.interval": 3}
RUN_KEYS = {key: value for key, value in KEYS.items() if not key.startswith("model.")}


def from_folder(folder):
    return RUN_KEYS | {"model.hf_assets_path": folder}


def make_folder(test):
    """A trained model of [model] keys as a Hugging Face folder."""
    run = test.train("source", 1, KEYS | {"model.tie_word_embeddings": "true"})
    folder = test.folder / "hf"
    test.command("export", run, folder)
    config = json.loads((folder / "config.json").read_text())
    check(config["model_type"] == "llama" and config["hidden_size"] == 64, config)
    return run, folder


def same_bits(test, source, folder):
    keys = from_folder(folder)
    with test.case("same bits on 1, 2 and 3 ranks"):
        reference = whole_curve(test.train("one", 1, keys), STEPS)
        for strategy, world_size in (("full_shard", 2), ("full_shard", 3), ("ddp", 2)):
            name = f"{strategy}_{world_size}"
            got = test.train(name, world_size, keys | {"parallelism.strategy": strategy})
            check_same(reference, whole_curve(got, STEPS), name)
        first = metrics(test.folder / "one")[0]["loss"]
        last = metrics(source)[-1]["loss"]
        check(abs(first - last) < 0.3, f"the first loss {first} is not that of the weights {last}")
    with test.case("resumed on other numbers of ranks"):
        resumed = test.train("resumed", 2, keys | {"training.steps": 3})
        test.ranks(resumed, 3, keys).expect(0)
        check_same(reference, whole_curve(resumed, STEPS), "resumed")
    with test.case("random weights of the same architecture are others"):
        run = test.train("random", 2, keys | {"model.init": "random"})
        check(metrics(run)[0]["loss"] > first + 0.3, "the first loss is that of the weights")


def edited(test, folder, name, edit):
    """A copy of the folder with its config.json's fields changed."""
    copy = test.folder / name
    shutil.copytree(folder, copy)
    config = json.loads((copy / "config.json").read_text())
    (copy / "config.json").write_text(json.dumps(config | edit))
    return copy


def rename_tensor(path, old, new):
    """In the header, without another length."""
    raw = path.read_bytes()
    (length,) = struct.unpack("<Q", raw[:8])
    header = raw[8:8 + length].replace(old.encode(), new.encode())
    check(len(header) == length and header != raw[8:8 + length], "nothing renamed")
    path.write_bytes(raw[:8] + header + raw[8 + length:])


def refused(test, keys, words, ranks=1):
    """By `lockstep train` before it makes anything, and by ranks that got there anyway."""
    folder = test.folder / "refused"
    config = test.folder / "empty.toml"
    config.write_text("")
    said = test.command("train", config, *flags({"data.path": test.tokens()} | keys),
                        f"--job.dump_folder={folder}", status=EXIT_CONFIG, timeout_s=20)
    check(not folder.exists(), f"train made {list(folder.rglob('*'))}")
    run = test.ranks(folder, ranks, keys)
    run.expect(EXIT_CONFIG)
    logs = [run.log(rank) for rank in range(ranks)]
    shutil.rmtree(folder, ignore_errors=True)
    for text in (said, *logs):
        for word in words:
            check(str(word) in text, f"nothing about {word} in\n{tail(text)}")


def faults(test, folder):
    with test.case("no such folder"):
        refused(test, from_folder("/nowhere/model"), ["/nowhere/model: there is no such folder"])
    with test.case("a field that is not implemented"):
        copy = edited(test, folder, "longrope",
                      {"rope_scaling": {"rope_type": "longrope", "factor": 2.0}})
        refused(test, from_folder(copy), [copy / "config.json", "rope_type", "longrope"])
        copy = edited(test, folder, "experts", {"num_local_experts": 8})
        refused(test, from_folder(copy), ["num_local_experts", "8"])
    with test.case("a [model] key that says something else"):
        refused(test, from_folder(folder) | {"model.dim": 96}, ["model.dim = 96", "64"])
    with test.case("weights with another shape, and of another model"):
        copy = edited(test, folder, "wide", {"intermediate_size": 192})
        refused(test, from_folder(copy), ["gate_proj", "[176, 64]", "[192, 64]"])
        copy = edited(test, folder, "deep", {"num_hidden_layers": 3})
        refused(test, from_folder(copy), ["missing", "model.layers.2."])
        copy = edited(test, folder, "shallow", {"num_hidden_layers": 1})
        refused(test, from_folder(copy), ["unexpected", "model.layers.1."])
        copy = edited(test, folder, "renamed", {})
        rename_tensor(copy / "model.safetensors", "model.norm.weight", "model.norn.weight")
        refused(test, from_folder(copy), ["missing: model.norm.weight",
                                          "unexpected: model.norn.weight"])
    with test.case("weights that are truncated, or not there"):
        copy = edited(test, folder, "cut", {})
        weights = copy / "model.safetensors"
        with open(weights, "r+b") as file:
            file.truncate(weights.stat().st_size - 5)
        refused(test, from_folder(copy), [weights, "truncated"], ranks=3)
        weights.unlink()
        refused(test, from_folder(copy), ["model.safetensors", "--model.init random"])


def folders_of_their_own(test, folder):
    """Of a node's own disk, which rank 0 has not seen."""
    copy = edited(test, folder, "copy", {})
    keys = from_folder(folder)

    def on_two(name):
        return test.ranks(test.folder / name, 2, keys,
                          lambda rank: {"model.hf_assets_path": copy} if rank == 1 else {})
    with test.case("a copy of the folder"):
        on_two("of_copy").expect(0)
        check_same(whole_curve(test.folder / "one", STEPS),
                   whole_curve(test.folder / "of_copy", STEPS), "of_copy")
    with test.case("other weights in a folder of the same names and sizes"):
        weights = copy / "model.safetensors"
        raw = weights.read_bytes()
        start = 8 + struct.unpack("<Q", raw[:8])[0]
        weights.write_bytes(raw[:start] + bytes(byte ^ 1 for byte in raw[start:]))
        run = on_two("of_others")
        check(run.wait() == [EXIT_PEER_LOST, EXIT_CONFIG], tail(run.all_logs()))
        for word in (weights, "differs from the file that rank 0 read", "has other first values"):
            check(str(word) in run.log(1), f"nothing about {word} in\n{tail(run.log(1))}")


def export_and_eval(test, source, folder):
    with test.case("export names what is wrong"):
        def said(*words):
            return test.command("export", *words, status=EXIT_CONFIG)
        check("has a config.json" in said(source, folder), "exported into a folder in use")
        check("holds no checkpoint" in said(test.folder / "hf", test.folder / "x"), "no run")
        wide = edited(test, folder, "wide_export", {"intermediate_size": 192})
        check("[176, 64]" in said(source, test.folder / "x", "--hf", wide), "another model")
        shallow = edited(test, folder, "shallow_export", {"num_hidden_layers": 1})
        check("model.layers.1." in said(source, test.folder / "y", "--hf", shallow), "other names")
        check(not (test.folder / "x" / "config.json").exists(), "a broken export looks complete")
    with test.case("an export has the tokenizer of the data, or of --hf"):
        (folder / "tokenizer.json").write_text('{"version": "1.0"}')
        (folder / "generation_config.json").write_text("{}")
        out, named = test.folder / "again", test.folder / "named"
        said = test.command("export", test.folder / "one", out, "--dtype", "bfloat16")
        check("no tokenizer was written: the data are bytes" in said, said)
        check(not (out / "tokenizer.json").exists(), "bytes, with the model's tokenizer")
        check((out / "generation_config.json").exists(), "generation_config.json is left out")
        test.command("export", test.folder / "one", named, "--hf", folder)
        check((named / "tokenizer.json").read_text() == '{"version": "1.0"}', "no tokenizer")
        check(json.loads((out / "config.json").read_text())["torch_dtype"] == "bfloat16", "dtype")
    with test.case("eval"):
        row = [step * 37 % 257 for step in range(2 * 3 * 16)]
        header = "{'descr': '<i4', 'fortran_order': False, 'shape': (2, 3, 16), }".ljust(117) + "\n"
        tokens = test.folder / "tokens.npy"
        tokens.write_bytes(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header.encode() +
                           struct.pack(f"<{len(row)}i", *row))
        report = json.loads(test.command("eval", "--hf", folder, "--tokens", tokens))
        check(report["tokens"] == 2 * 3 * 15 and 0 < report["loss"] < 30, report)
        said = test.command("eval", "--hf", folder, "--tokens", "/no/t.npy", status=EXIT_CONFIG)
        check("/no/t.npy" in said, said)
        with open(tokens, "r+b") as file:
            file.seek(-4, 2)
            file.write(struct.pack("<i", 257))
        said = test.command("eval", "--hf", folder, "--tokens", tokens, status=EXIT_CONFIG)
        check("token 257 at index 95" in said, said)
    with test.case("eval of text, JSON lines and shards"):
        words = "To be, or not to be. " * 9
        text, lines = test.folder / "text.txt", test.folder / "lines.jsonl"
        text.write_text(words)
        lines.write_text((json.dumps({"text": words}) + "\n") * 5)
        by_bytes = ("eval", "--hf", folder, "--tokenizer", "byte")
        cut = json.loads(test.command(*by_bytes, text, "--seq-len", 32))
        whole = json.loads(test.command(*by_bytes, text))
        check(cut["tokens"] == whole["tokens"] == len(words) and cut != whole, cut, whole)
        records = json.loads(test.command(*by_bytes, lines, "--text-field", "text"))
        check(records["tokens"] == 5 * len(words), records)
        check(abs(records["loss"] - whole["loss"]) < 1e-6 * whole["loss"], records, whole)
        tokens = json.loads((test.tokens() / "manifest.json").read_text())["tokens"]
        for split in ("val", "train"):
            report = json.loads(test.command("eval", "--hf", folder, "--data", test.tokens(),
                                             "--split", split))
            check(report["tokens"] == tokens[split] - 1, split, report, tokens)
        for wrong, said in (([], "exactly one of"), ([text, "--data", folder], "exactly one of"),
                            (["/no/text.txt"], "/no/text.txt"),
                            (["--data", folder], "manifest.json"),
                            ([lines, "--text-field", "words"], "its fields are: text")):
            printed = test.command(*by_bytes, *wrong, status=EXIT_CONFIG)
            check(said in printed, said, printed)


with Test("hf_folder") as test:
    source, folder = make_folder(test)
    same_bits(test, source, folder)
    faults(test, folder)
    folders_of_their_own(test, folder)
    export_and_eval(test, source, folder)
