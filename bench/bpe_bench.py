#!/usr/bin/env python3
"""Seconds to learn a BPE vocabulary, ours against `tokenizers`, one run, the same text.

  bpe_bench.py TRAIN_BPE VOCABULARY FILE…   with the Python of tools/setup --reference

Both get the text in pieces of about 64 KiB that end at a line's end, and must learn the same
merges. Ours uses one thread; `tokenizers` one, then two. Reading is not timed.
"""
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

SEGMENT = 1 << 16


def segments(raw):
    at = 0
    while at < len(raw):
        end = min(len(raw), at + SEGMENT)
        line = raw.rfind(b"\n", at, end)
        if end < len(raw) and line >= 0:
            end = line + 1
        yield raw[at:end].decode()
        at = end


def theirs(path, vocabulary):
    """In a process of its own: the number of threads is read once."""
    from tokenizers import Tokenizer, models, pre_tokenizers, trainers
    texts = list(segments(pathlib.Path(path).read_bytes()))
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    start = time.perf_counter()
    tokenizer.train_from_iterator(texts, trainers.BpeTrainer(
        vocab_size=vocabulary, special_tokens=["<|endoftext|>"], show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    seconds = time.perf_counter() - start
    merges = json.loads(tokenizer.to_str())["model"]["merges"]
    print(json.dumps([seconds, [" ".join(m) if isinstance(m, list) else m for m in merges]]))


def main(program, vocabulary, paths):
    with tempfile.TemporaryDirectory() as folder:
        text, out = pathlib.Path(folder) / "text", pathlib.Path(folder) / "tokenizer.json"
        text.write_bytes(b"".join(pathlib.Path(path).read_bytes() for path in sorted(paths)))
        ours = json.loads(subprocess.run([program, text, str(vocabulary), out], check=True,
                                         capture_output=True).stdout)
        merges = json.loads(out.read_text())["model"]["merges"]
        print(f"{text.stat().st_size / 1e6:.1f} MB, {vocabulary} tokens\n"
              f"lockstep, 1 thread    {sum(ours.values()):7.2f} s  "
              f"(counting {ours['count_s']:.2f}, learning {ours['learn_s']:.2f})")
        for threads in (1, 2):
            environment = os.environ | {"RAYON_NUM_THREADS": str(threads),
                                        "TOKENIZERS_PARALLELISM": "true"}
            seconds, other = json.loads(subprocess.run(
                [sys.executable, __file__, "--theirs", text, str(vocabulary)], check=True,
                capture_output=True, env=environment).stdout)
            same = "the same merges" if other == merges else "OTHER MERGES"
            print(f"tokenizers, {threads} thread{'s' if threads > 1 else ' '} {seconds:7.2f} s  "
                  f"({same})", flush=True)


if __name__ == "__main__":
    if sys.argv[1] == "--theirs":
        theirs(sys.argv[2], int(sys.argv[3]))
    else:
        main(sys.argv[1], int(sys.argv[2]), sys.argv[3:])
