#!/usr/bin/env python3
"""Losses and gradient norms of 20 steps are those recorded in losses/, and the same on 1 and on 3
ranks and after a kill.

  losses.py            compares; exit 1 where a curve is another one
  losses.py --record   writes the curves of this identity into losses/ instead

An identity is what a run says of its device, of the instruction set that LibTorch uses, and of
LibTorch's minor version. On a recorded identity every bit must be the recorded one. On another
identity losses must lie within TOLERANCE of a recorded one. README.md says when to record.
"""
import json
import pathlib
import re
import shutil
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "multirank"))
from lockstep_run import (NO_CHECKPOINTS, TINY, WORDS, Test, check, check_same,  # noqa: E402
                          committed, curve, metrics, step_of, tail, wait_until, whole_curve)

RECORDS = pathlib.Path(__file__).resolve().parent / "losses"
# Relative, of losses. README.md says what was measured.
TOLERANCES = {"fp32": 1e-5, "bf16": 5e-4}
STEPS, KILLED_AFTER = 20, 10
BASE = TINY | NO_CHECKPOINTS | {"training.steps": STEPS, "lr_scheduler.total_steps": STEPS}
FP32 = {"training.mixed_precision_param": "float32"}
BF16 = {"training.mixed_precision_param": "bfloat16"}
# LibTorch's libraries read them, and no identity shows them.
UNSEEN = ("DNNL_", "KMP_", "MKL_", "OMP_", "ONEDNN_")

VOCABULARY = 257  # bytes and the end of a document
QWEN3 = {"model_type": "qwen3", "hidden_size": 64, "num_hidden_layers": 2,
         "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 32,
         "intermediate_size": 176, "vocab_size": VOCABULARY, "tie_word_embeddings": True}
GPT2 = {"model_type": "gpt2", "n_embd": 64, "n_layer": 2, "n_head": 4, "n_positions": 64,
        "vocab_size": VOCABULARY}


def from_config(test, name, config):
    """Keys of a model with random weights that a Hugging Face config.json describes."""
    folder = test.folder / f"hf_{name}"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(config))
    others = {key: value for key, value in BASE.items() if not key.startswith("model.")}
    return others | {"model.hf_assets_path": folder, "model.init": "random"}


def packed_tokens(test):
    """Short documents, chosen by counting, in samples of T tokens."""
    lines = [json.dumps({"text": " ".join(WORDS[(i * i + 3 * j) % len(WORDS)]
                                          for j in range(1 + i * i % 19))}) for i in range(300)]
    records, out = test.folder / "records.jsonl", test.folder / "packed"
    records.write_text("\n".join(lines))
    test.command("prepare", records, "--text-field", "text", "--pack", BASE["training.seq_len"],
                 "--out", out)
    return out


def all_cases(test):
    """{name: keys}; the second word of a name is its precision."""
    families = {"llama": BASE, "qwen3": from_config(test, "qwen3", QWEN3),
                "gpt2": from_config(test, "gpt2", GPT2)}
    cases = {f"{family} {precision}": model | keys for family, model in families.items()
             for precision, keys in (("fp32", FP32), ("bf16", BF16))}
    packed = {"data.path": packed_tokens(test), "model.dropout": 0.1}
    cases["llama fp32 packed with dropout"] = BASE | FP32 | packed
    cases["gpt2 bf16 packed with dropout"] = families["gpt2"] | BF16 | packed
    return cases


def identity_lines(folder):
    """{name: value} of what makes up a run's identity."""
    lines = json.loads((folder / "run_args.json").read_text())["identity"]
    return dict(line.split("=", 1) for line in lines)


def recorded_form(curves, folders):
    """What a file of losses/ holds, from {case: curve} and {case: run folder}."""
    lines = {name: identity_lines(folder) for name, folder in folders.items()}
    of_any = next(iter(lines.values()))
    return {"device": of_any["device"], "cpu_capability": of_any["build.cpu_capability"],
            "torch": ".".join(of_any["build.torch"].split(".")[:2]),
            "cases": {name: {"data": lines[name]["data.manifest"],
                             "curve": [" ".join(found[step]) for step in sorted(found)]}
                      for name, found in curves.items()}}


def identity_of(form):
    return f"{form['device']}, {form['cpu_capability']}, torch {form['torch']}"


def file_of(form):
    return RECORDS / (re.sub(r"[^A-Za-z0-9.]+", "_", identity_of(form)) + ".json")


def all_records():
    """{identity: form} of the files of losses/."""
    forms = [json.loads(path.read_text()) for path in sorted(RECORDS.glob("*.json"))]
    return {identity_of(form): form for form in forms}


def difference(recorded, ours, name, exact):
    """None, or where a case of `ours` is not that of `recorded`: in bits, else by TOLERANCES."""
    tolerance = TOLERANCES[name.split()[1]]
    was, found = recorded["cases"].get(name), ours["cases"][name]
    if was is None:
        return "not recorded"
    if was["data"] != found["data"]:
        return f"the data is {found['data']}, recorded was {was['data']}"
    check(len(was["curve"]) == len(found["curve"]) == STEPS, f"{name}: not {STEPS} steps")
    for step, (before, now) in enumerate(zip(was["curve"], found["curve"]), 1):
        if exact and before != now:
            return f"step {step}: {now}, recorded was {before}"
        loss, reference = (float.fromhex(bits.split()[0]) for bits in (now, before))
        if not abs(loss - reference) <= tolerance * abs(reference):
            return f"step {step}: loss {loss}, recorded was {reference}"
    return None


def reference_for(ours, records):
    """(form, whether its bits must be ours): the own identity's, else one of the same torch."""
    own = records.get(identity_of(ours))
    if own:
        return own, True
    check(records, "nothing is recorded")
    return min(records.values(), key=lambda form: form["torch"] != ours["torch"]), False


def killed_and_resumed(test, keys):
    """The curve of a run that was killed with three ranks after the save of step KILLED_AFTER and
    went on with two. It would go on for ever, so the kill always meets it; checkpoints and lines
    that came after that save are taken away or left out."""
    keys = keys | {"checkpoint.enable": "true", "checkpoint.interval": KILLED_AFTER,
                   "checkpoint.keep_latest_k": 0}
    folder = test.folder / "killed"
    run = test.ranks(folder, 3, keys | {"training.steps": 1_000_000})
    wait_until(lambda: committed(folder), "the first save")
    check(run.running(), f"a rank has ended\n{tail(run.all_logs())}")
    run.kill()
    check(step_of(committed(folder)[-1]) == KILLED_AFTER, committed(folder))
    for path in (folder / "checkpoints").glob("step_*"):
        if step_of(path.name) != KILLED_AFTER:
            shutil.rmtree(path)
    test.ranks(folder, 2, keys).expect(0)
    resumed = [line["step"] for line in metrics(folder) if line["world_size"] == 2]
    check(resumed == list(range(KILLED_AFTER + 1, STEPS + 1)), f"the resumed run had {resumed}")
    return {step: bits for step, bits in curve(folder).items() if step <= STEPS}


def broken(test, rule, world_size, keys, name):
    """The recorded form of a run with one rule of the arithmetic broken."""
    folder = test.train(f"rule_{rule}", world_size, keys | {"debug.break_rule": rule})
    return recorded_form({name: whole_curve(folder, STEPS)}, {name: folder})


def write(ours):
    """One step a line."""
    RECORDS.mkdir(exist_ok=True)
    file_of(ours).write_text(json.dumps(ours, indent=1) + "\n")
    print(f"recorded {file_of(ours).relative_to(RECORDS.parent)}")


def compared(test, ours, records, reference, exact):
    print(f"       {identity_of(ours)}: " + ("every bit is compared with its own record" if exact
          else f"not recorded; losses are compared with those of {identity_of(reference)}"))
    for name in ours["cases"]:
        with test.case(f"{name}: as recorded"):
            found = difference(reference, ours, name, exact)
            check(found is None, found)
    with test.case("the recorded identities agree with each other"):
        first, *others = records.values()
        for other in others:
            for name in first["cases"]:
                found = difference(first, other, name, exact=False)
                check(found is None, f"{identity_of(other)}, {name}: {found}")


def sees_broken_rules(test, keys, name, reference, exact):
    """Rule 6 gives three ranks other weights. Rule 4 only adds in another order: bits show that,
    a tolerance does not."""
    for rule, world_size, in_bits in (("6", 3, False), ("4", 1, True)):
        if in_bits and not exact:
            continue
        with test.case(f"{name}, rule {rule} broken: not as recorded"):
            ours = broken(test, rule, world_size, keys, name)
            found = difference(reference, ours, name, in_bits)
            check(found, "as recorded, so this test sees nothing")
            print(f"       {found}")


def main():
    with Test("losses") as test:
        test.environment = {key: value for key, value in test.environment.items()
                            if not key.startswith(UNSEEN)}
        cases, curves, folders = all_cases(test), {}, {}
        for name, keys in cases.items():
            with test.case(f"{name}: W = 1 and 3"):
                folders[name] = test.train(name.replace(" ", "_"), 1, keys)
                curves[name] = whole_curve(folders[name], STEPS)
                three = test.train(name.replace(" ", "_") + "_3", 3, keys)
                check_same(curves[name], whole_curve(three, STEPS), f"{name}: W = 1 and 3")
        last = list(cases)[-1]
        with test.case(f"{last}: killed and resumed"):
            check_same(curves[last], killed_and_resumed(test, cases[last]), "after the kill")
        if test.failures:
            return
        ours = recorded_form(curves, folders)
        if "--record" in sys.argv[1:]:
            write(ours)
        records = all_records()
        reference, exact = reference_for(ours, records)
        compared(test, ours, records, reference, exact)
        sees_broken_rules(test, cases["llama fp32"], "llama fp32", reference, exact)


if __name__ == "__main__":
    main()
