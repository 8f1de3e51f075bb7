"""`lockstep eval` on text, JSON lines and token shards gives transformers' losses, and
lm-evaluation-harness its own numbers on the same exported folder, without a network.

  eval_test.py SOURCE_FOLDER FOLDER_OF_PROGRAMS
"""
import json
import math
import os
import pathlib
import random
import subprocess
import sys
import tempfile

import numpy
import torch
import transformers

import lockstep_files

MODEL = ["--model.dim=64", "--model.n_layers=2", "--model.n_heads=4", "--model.n_kv_heads=2",
         "--model.ffn_dim=176", "--training.seq_len=64", "--training.local_batch_size=4",
         "--training.slots=2", "--training.steps=30", "--optimizer.lr=3e-3",
         "--validation.freq=0", "--checkpoint.interval=30"]
WORDS = "the of and to a in that it is was he for on are with as his they be at one".split()
T = 32


def text_of(seed, words):
    chosen = random.Random(seed)
    return " ".join(WORDS[int(len(WORDS) * chosen.random() ** 2)] for _ in range(words))


class Folder:
    """A small model that a run exported, as both sides have it."""

    def __init__(self, programs, scratch):
        self.programs, self.scratch = programs, scratch
        (scratch / "texts").mkdir()
        for seed in range(50):  # some are held out
            (scratch / f"texts/{seed}.txt").write_text(text_of(100 + seed, 400) + "\n")
        (scratch / "empty.toml").write_text("")
        self.tokens, self.path = scratch / "tokens", scratch / "exported"
        self.lockstep("prepare", scratch / "texts", "--train-bpe", "300", "--val-fraction",
                      "0.2", "--out", self.tokens)
        self.lockstep("train", scratch / "empty.toml", *MODEL, f"--data.path={self.tokens}",
                      f"--job.dump_folder={scratch / 'run'}")
        self.lockstep("export", scratch / "run", self.path)
        self.model = transformers.AutoModelForCausalLM.from_pretrained(self.path).float().eval()
        self.tokenizer = transformers.AutoTokenizer.from_pretrained(self.path)
        self.end = self.tokenizer.eos_token_id

    def lockstep(self, *words):
        return subprocess.run([self.programs / "lockstep", *words], check=True, timeout=120,
                              stdout=subprocess.PIPE, text=True, cwd=self.scratch).stdout

    def evaluate(self, *words):
        return json.loads(self.lockstep("eval", "--hf", self.path, *words))

    def ids(self, text):
        return self.tokenizer(text, add_special_tokens=False)["input_ids"]

    def losses(self, ids):
        """-log p of ids[1:], each given all of `ids` before it."""
        with torch.no_grad():
            logits = self.model(torch.tensor([ids])).logits[0, :-1].double()
        chosen = torch.log_softmax(logits, -1).gather(1, torch.tensor(ids[1:])[:, None])
        return (-chosen[:, 0]).tolist()


def check_same(what, report, losses):
    assert report["tokens"] == len(losses), (what, report, len(losses))
    mean = sum(losses) / len(losses)
    assert abs(report["loss"] - mean) < 2e-6 * mean, (what, report, mean)
    assert abs(report["perplexity"] - math.exp(report["loss"])) < 1e-9 * report["perplexity"]
    print(f"{what}: loss {report['loss']:.6f} of {len(losses)} tokens")


def pieces(folder, ids, length):
    """Losses of a stream that is cut each `length` tokens; neighbours share one token."""
    return [loss for first in range(0, len(ids) - 1, length)
            for loss in folder.losses(ids[first:first + length + 1])]


def check_text(folder):
    held_out = folder.scratch / "held_out.txt"
    held_out.write_text(text_of(2, 300) + "\n")
    ids = folder.ids(held_out.read_text()) + [folder.end]
    assert (len(ids) - 1) % T, "no last piece that is shorter"
    check_same("text", folder.evaluate(held_out, "--seq-len", str(T)), pieces(folder, ids, T))
    check_same("text at once", folder.evaluate(held_out), pieces(folder, ids, 1024))


def check_run(folder):
    """A run, or one of its checkpoints, needs no export."""
    held_out = folder.scratch / "held_out.txt"
    exported = folder.evaluate(held_out, "--seq-len", str(T))
    run = folder.scratch / "run"
    [manifest] = (run / "checkpoints").glob("*/manifest.json")
    for model in (run, manifest.parent):
        words = folder.lockstep("eval", model, held_out, "--seq-len", str(T))
        assert json.loads(words) == exported, (words, exported)
    by_itself = json.loads(folder.lockstep("eval", run))
    assert by_itself == folder.evaluate("--data", folder.tokens, "--seq-len", "64"), by_itself
    done = subprocess.run([folder.programs / "lockstep", "eval", held_out], capture_output=True,
                          text=True, timeout=120)
    assert done.returncode == 64 and "not a run's folder" in done.stderr, done
    folder.lockstep("prepare", held_out, "--out", folder.scratch / "no_val", "--val-fraction", "0")
    done = subprocess.run([folder.programs / "lockstep", "eval", run, "--data",
                           folder.scratch / "no_val"], capture_output=True, text=True, timeout=120)
    assert done.returncode == 64 and "take the other split" in done.stderr, done
    print("a run and a checkpoint: as their export")


def check_records(folder):
    texts = [text_of(seed, 5 + seed) for seed in range(8)]
    lines = folder.scratch / "held_out.jsonl"
    lines.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    losses = [loss for text in texts for loss in folder.losses(folder.ids(text) + [folder.end])]
    check_same("JSON lines", folder.evaluate(lines, "--text-field", "text"), losses)

    pairs = folder.scratch / "pairs.jsonl"
    pairs.write_text("".join(json.dumps({"q": text, "a": " " + text_of(20 + i, 6)}) + "\n"
                             for i, text in enumerate(texts)))
    losses = []
    for line in pairs.read_text().splitlines():
        prompt, answer = (folder.ids(json.loads(line)[key]) for key in "qa")
        losses += folder.losses([*prompt, *answer, folder.end])[len(prompt) - 1:]
    report = folder.evaluate(pairs, "--prompt-field", "q", "--response-field", "a")
    check_same("prompts and answers", report, losses)
    return lines, texts


def check_shards(folder):
    for split in ("val", "train"):
        ids = lockstep_files.Tokens(folder.tokens, split).stream.tolist()
        report = folder.evaluate("--data", folder.tokens, "--split", split, "--seq-len", "64")
        check_same(f"shards, {split}", report, pieces(folder, ids, 64))


# ---- lm-evaluation-harness ----------------------------------------------------------------------
def harness(folder, source, *tasks):
    """What it writes of `tasks`, by the command of docs/EVALUATION.md."""
    out = folder.scratch / "harness"
    environment = os.environ | {"HF_HUB_OFFLINE": "1", "HF_HOME": str(folder.scratch / "home"),
                                "GIT_CEILING_DIRECTORIES": "/"}
    done = subprocess.run(
        [sys.executable, "-m", "lm_eval", "--model", "hf", "--model_args",
         f"pretrained={folder.path},dtype=float32", "--tasks", ",".join(tasks), "--include_path",
         source / "examples/lm_eval", "--device", "cpu", "--output_path", out],
        env=environment, cwd=folder.scratch, capture_output=True, text=True, timeout=500)
    assert done.returncode == 0, done.stdout + done.stderr
    [results] = out.rglob("results_*.json")
    return json.loads(results.read_text())["results"]


def check_harness(folder, source, lines, texts):
    assert lines.name == "held_out.jsonl"
    (folder.scratch / "questions.jsonl").write_text("".join(
        json.dumps({"question": "the of and", "choices": choices, "answer": answer}) + "\n"
        for choices, answer in ((["zqx", "the"], 1), ([" to", " Kxq"], 0), ([" in", "%%%"], 1))))
    found = harness(folder, source, "held_out", "questions")
    # A text's first token is predicted from the end of another: the same by lockstep's own eval.
    nats = 0
    for text in texts:
        ids = numpy.array([[[folder.end, *folder.ids(text)]]], dtype=numpy.int32)
        numpy.save(folder.scratch / "one.npy", ids)
        report = folder.evaluate("--tokens", folder.scratch / "one.npy")
        nats += report["loss"] * report["tokens"]
    bits = nats / math.log(2) / sum(len(text.encode()) for text in texts)
    theirs = found["held_out"]["bits_per_byte,none"]
    assert abs(theirs - bits) < 2e-6 * bits, (theirs, bits)
    accuracy = found["questions"]["acc,none"]
    assert abs(accuracy - 2 / 3) < 1e-9, found["questions"]
    print(f"lm-evaluation-harness: {theirs:.6f} bits a byte, as lockstep eval; acc {accuracy:.3f}")


def main(source, programs):
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    with tempfile.TemporaryDirectory() as scratch:
        folder = Folder(programs, pathlib.Path(scratch))
        check_text(folder)
        check_run(folder)
        lines, texts = check_records(folder)
        check_shards(folder)
        check_harness(folder, source, lines, texts)


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2]).resolve())
