#!/usr/bin/env python3
"""Tokens a second of `lockstep generate` and of transformers with its cache, on one model with
random weights, one run after the other, on the same cores:

    .deps/reference/bin/python bench/generate_speed.py --bin build/release/bin --threads 2

Loading is not counted: times are those between the first token and the last one. With random
weights greedy tokens say nothing about a model: only their number counts."""
import argparse
import json
import os
import pathlib
import resource
import subprocess
import sys
import tempfile
import time

SIZES = {  # Qwen3-0.6B's, and a small one to try this script with
    "0.6B": dict(hidden_size=1024, num_hidden_layers=28, num_attention_heads=16,
                 num_key_value_heads=8, head_dim=128, intermediate_size=3072, vocab_size=151936,
                 tie_word_embeddings=True, max_position_embeddings=40960, rope_theta=1000000.0),
    "tiny": dict(hidden_size=64, num_hidden_layers=2, num_attention_heads=4,
                 num_key_value_heads=2, head_dim=16, intermediate_size=128, vocab_size=512,
                 tie_word_embeddings=True, max_position_embeddings=4096, rope_theta=10000.0),
}
PROMPT = "Once upon a time"


def make_model(folder, size, dtype):
    import torch
    import transformers
    torch.manual_seed(7)
    config = transformers.Qwen3Config(**SIZES[size])
    model = transformers.Qwen3ForCausalLM(config).to(getattr(torch, dtype))
    model.save_pretrained(folder)


def children_s():
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def lockstep(args, folder, tokens):
    command = [args.bin / "lockstep", "generate", folder, "--tokenizer", "byte", "--prompt", PROMPT,
               "--temperature", "0", "--ignore-end", "--tokens", tokens, "--threads", args.threads]
    before, began = children_s(), time.perf_counter()
    with subprocess.Popen(list(map(str, command)), stdout=subprocess.PIPE,
                          stderr=subprocess.DEVNULL) as process:
        os.read(process.stdout.fileno(), len(PROMPT))  # shown with the first token
        first = time.perf_counter()
        process.stdout.read()
        last = time.perf_counter()
    if process.returncode != 0:
        sys.exit(f"{command} ended with status {process.returncode}")
    return {"first_token_s": first - began, "s": last - first, "cpu_s": children_s() - before}


def reference(args, folder, tokens):
    command = [sys.executable, __file__, "--reference", folder, "--threads", args.threads,
               "--tokens", tokens]
    before = children_s()
    said = subprocess.run(list(map(str, command)), capture_output=True, check=True, text=True)
    return json.loads(said.stdout) | {"cpu_s": children_s() - before}


def be_reference(args):
    import torch
    import transformers
    torch.set_num_threads(args.threads)
    began = time.perf_counter()
    model = transformers.AutoModelForCausalLM.from_pretrained(args.reference, dtype="auto").eval()
    ids = torch.tensor([list(PROMPT.encode())])
    times = []

    class Clock(transformers.generation.streamers.BaseStreamer):
        def put(self, value):
            times.append(time.perf_counter())

        def end(self):
            pass
    with torch.inference_mode():
        model.generate(ids, do_sample=False, min_new_tokens=args.tokens[0], streamer=Clock(),
                       max_new_tokens=args.tokens[0], use_cache=True, pad_token_id=0)
    # times[0] is the prompt's.
    print(json.dumps({"first_token_s": times[1] - began, "s": times[-1] - times[1]}))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bin", type=pathlib.Path, default=pathlib.Path("build/release/bin"))
    parser.add_argument("--size", choices=SIZES, default="0.6B")
    parser.add_argument("--dtype", choices=("bfloat16", "float32"), default="bfloat16")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--tokens", type=int, nargs="+", default=[100, 800])
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--folder", help="keep the model here, or take the one that is there")
    parser.add_argument("--reference", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.reference:
        be_reference(args)
        return
    with tempfile.TemporaryDirectory() as scratch:
        folder = pathlib.Path(args.folder or scratch) / f"{args.size}-{args.dtype}"
        if not folder.exists():
            make_model(folder, args.size, args.dtype)
        for tokens in args.tokens:
            for _ in range(args.rounds):
                for name, run in (("lockstep", lockstep), ("transformers", reference)):
                    took = run(args, folder, tokens)
                    rate = (tokens - 1) / took["s"]
                    print(f"{args.size} {args.dtype} {tokens:4} tokens {name:12} {rate:7.2f} "
                          f"tokens/s {1000 / rate:7.1f} ms a token, first token after "
                          f"{took['first_token_s']:.2f} s, {took['cpu_s']:.1f} s of CPU",
                          flush=True)


if __name__ == "__main__":
    main()
