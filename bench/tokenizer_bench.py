#!/usr/bin/env python3
"""MB/s of our tokenizers against `tokenizers` and `tiktoken`, one run, the same text and ids.

  tokenizer_bench.py ENCODE_PARAGRAPHS FILE…   with the Python of tools/setup --reference

FILE: text files, cut into documents of 64 KiB. Each library encodes them on one thread and on two;
the best of three counts. Ours is timed inside encode_paragraphs, without start and reading.
"""
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

os.environ.setdefault("RAYON_NUM_THREADS", "2")
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "tests/reference"))
import tokenizer_test  # noqa: E402  (its definitions and file formats)

MAX_BYTES, DOCUMENT, ROUNDS = 8_000_000, 1 << 16, 3


def documents(paths):
    raw = b"".join(pathlib.Path(path).read_bytes() for path in paths)[:MAX_BYTES]
    return [raw[i:i + DOCUMENT].decode(errors="replace") for i in range(0, len(raw), DOCUMENT)]


def best_s(encode):
    times = []
    for _ in range(ROUNDS):
        start = time.perf_counter()
        encode()
        times.append(time.perf_counter() - start)
    return min(times)


def ours(program, path, folder, threads):
    out = [json.loads(subprocess.run([program, str(path), str(folder / "texts"),
                                      str(folder / "ids"), str(threads)], check=True,
                                     capture_output=True).stdout) for _ in range(ROUNDS)]
    return min(each["seconds"] for each in out)


def reference(name, folder, texts, threads):
    """The library's own way to use one thread or two."""
    if name.endswith("json"):
        import tokenizers
        os.environ["TOKENIZERS_PARALLELISM"] = "true" if threads > 1 else "false"
        tokenizer = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
        return lambda: tokenizer.encode_batch_fast(texts, add_special_tokens=False)
    _, encode = tokenizer_test.DEFINITIONS[name](folder, texts)
    return (lambda: encode(texts)) if threads > 1 else (lambda: [encode([text]) for text in texts])


def main(program, paths):
    texts = documents(paths)
    mb = sum(len(text.encode()) for text in texts) / 1e6
    print(f"{mb:.1f} MB in {len(texts)} documents\n"
          "definition     library     threads  ours MB/s  theirs MB/s  ratio")
    for name, library in (("gpt2_json", "tokenizers"), ("gpt2_files", "tiktoken"),
                          ("llama3_ranks", "tiktoken"), ("llama3_json", "tokenizers")):
        with tempfile.TemporaryDirectory() as temporary:
            folder = pathlib.Path(temporary)
            tokenizer_test.write_texts(folder / "texts", texts)
            path, _ = tokenizer_test.DEFINITIONS[name](folder, texts)
            for threads in (1, 2):
                a = mb / ours(program, path, folder, threads)
                b = mb / best_s(reference(name, folder, texts, threads))
                print(f"{name:14} {library:11} {threads:7}  {a:9.1f}  {b:11.2f}  {a / b:5.1f}",
                      flush=True)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
