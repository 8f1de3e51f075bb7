#!/usr/bin/env python3
"""Tokens a second and MFU of a Llama on one GPU: Lockstep, plain PyTorch, FSDP2, torch.compile.

  llama_bench.py --bin build/cuda/bin --python .deps/reference/bin/python3 --model 1b
  llama_bench.py … --model 8b --batch 1 --accumulate 8 --set activation_checkpoint.mode=full
  llama_bench.py … --model qwen-0.5b --sides lockstep,fsdp2,fsdp2-compile

One round runs the sides as fresh processes, one after the other, in bf16 with fp32 master weights;
a figure is the median over the steps after the warm-up. `pytorch` and `compile` are autocast on one
process, `fsdp2` and `fsdp2-compile` are FSDP2 on one rank. Qwen2.5's shapes have no biases here and
a head of their own. FLOPs a token are counted as docs/ARCHITECTURE.md says: 6 * (parameters -
embedding) + 12 * layers * heads * head_dim * tokens; MFU is against --peak-tflops, the device's
dense bf16 peak (989 for an H100 SXM). Prints one JSON line a run and a Markdown table.
"""
import argparse
import json
import pathlib
import statistics
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
import job  # noqa: E402

MODELS = {  # dim, layers, heads, key heads, feed-forward, vocabulary
    "micro": (64, 2, 4, 2, 176, 512),
    "tiny": (512, 8, 8, 4, 1408, 8192),
    "1b": (2048, 16, 32, 8, 8192, 128256),
    "3b": (3072, 28, 24, 8, 8192, 128256),
    "8b": (4096, 32, 32, 8, 14336, 128256),
    "8b-8l": (4096, 8, 32, 8, 14336, 128256),  # 8 of its 32 layers
    "qwen-0.5b": (896, 24, 14, 2, 4864, 151936),
    "qwen-1.5b": (1536, 28, 12, 2, 8960, 151936),
    "qwen-3b": (2048, 36, 16, 2, 11008, 151936),
    "qwen-7b": (3584, 28, 28, 4, 18944, 152064),
}
SIDES = {  # of PyTorch: strategy, whether compiled
    "pytorch": ("single", False), "compile": ("single", True),
    "fsdp2": ("fsdp2", False), "fsdp2-compile": ("fsdp2", True),
}
SHAPE = ("dim", "layers", "heads", "kv-heads", "ffn", "vocab")


def arguments(words=None):
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--bin", type=pathlib.Path, required=True, help="folder of lockstep")
    parser.add_argument("--python", default=sys.executable, help="a Python that has torch")
    parser.add_argument("--model", choices=MODELS, default="1b")
    for name, value in (("seq", 4096), ("batch", 1), ("accumulate", 4), ("steps", 10),
                        ("warmup", 3), ("rounds", 3)):
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--sides", default="lockstep,pytorch,compile")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda", help="of PyTorch")
    parser.add_argument("--peak-tflops", type=float, default=989.0)
    parser.add_argument("--ac", action="store_true", help="PyTorch: checkpoint every block")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE",
                        help="one more key for Lockstep")
    a = parser.parse_args(words)
    a.bin = a.bin.resolve()
    for side in a.sides.split(","):
        if side != "lockstep" and side not in SIDES:
            parser.error(f"--sides {side}: one of lockstep, {', '.join(SIDES)}")
    return a


def flops_per_token(a):
    dim, layers, heads, kv_heads, ffn, vocab = MODELS[a.model]
    width = dim // heads
    block = 2 * dim * dim + 2 * dim * kv_heads * width + 3 * dim * ffn + 2 * dim
    return 6 * (layers * block + dim + dim * vocab) + 12 * layers * heads * width * a.seq


def lockstep_keys(a):
    """What `lockstep train` and `lockstep plan` are told."""
    dim, layers, heads, kv_heads, ffn, vocab = MODELS[a.model]
    keys = {"model.dim": dim, "model.n_layers": layers, "model.n_heads": heads,
            "model.n_kv_heads": kv_heads, "model.ffn_dim": ffn, "model.vocab_size": vocab,
            "training.seq_len": a.seq, "training.local_batch_size": a.batch,
            "training.slots": a.accumulate, "training.mixed_precision_param": "bfloat16",
            "parallelism.strategy": "single"}
    keys.update(pair.split("=", 1) for pair in a.set)
    return keys


def with_mfu(run, a):
    return run | {"mfu_pct": 100 * run["tokens_per_s"] * flops_per_token(a) / (
        a.peak_tflops * 1e12)}


def run_lockstep(a, folder, name):
    keys = {"training.steps": a.warmup + a.steps, "metrics.peak_tflops": a.peak_tflops}
    lines, whole = job.train(a.bin, folder, name, 1, keys | lockstep_keys(a))
    step_s = statistics.median(line["step_time_s"] for line in lines[a.warmup:])
    return with_mfu({"step_s": step_s, "tokens_per_s": lines[-1]["tokens"] / step_s,
                     "peak_device_mib": round(whole["peak_memory_GB"] * 1e9 / 2**20),
                     "device": whole["device_model"],
                     "phases_s": whole["phases_s_per_step"],
                     "losses": [round(lines[i]["loss"], 5) for i in (0, -1)]}, a)


def run_pytorch(a, side):
    strategy, compiled = SIDES[side]
    flags = dict(zip(SHAPE, MODELS[a.model]), seq=a.seq, batch=a.batch, accumulate=a.accumulate,
                 steps=a.steps, warmup=a.warmup, strategy=strategy, precision="bf16",
                 device=a.device)
    return with_mfu(job.pytorch(a.python, 1, flags, ["compile"] * compiled + ["ac"] * a.ac), a)


def main():
    a = arguments()
    results = {side: [] for side in a.sides.split(",")}
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        job.prepare_tokens(a.bin, folder)
        for number in range(a.rounds):
            for side, runs in results.items():
                runs.append(run_lockstep(a, folder, f"run-{number}") if side == "lockstep"
                            else run_pytorch(a, side))
                print(json.dumps({"side": side, "round": number, **runs[-1]}), flush=True)
    print(f"\n{a.model}: {a.accumulate} x {a.batch} x {a.seq} tokens a step; medians of "
          f"{a.rounds} rounds\n\n| side | tokens/s | MFU % | device MiB |\n"
          "| --- | --- | --- | --- |")
    for side, runs in results.items():
        middle = [statistics.median(r[key] for r in runs)
                  for key in ("tokens_per_s", "mfu_pct", "peak_device_mib")]
        print(f"| {side} | {middle[0]:.0f} | {middle[1]:.1f} | {middle[2]:.0f} |")


if __name__ == "__main__":
    main()
