#!/usr/bin/env python3
"""Tokens a second of Lockstep and of PyTorch, alternating on the same machine in one run.

  train_bench.py --bin build/release/bin --python .deps/reference/bin/python3
  train_bench.py … --cases fsdp-fp32,ddp-bf16 --rounds 3 --steps 6
  train_bench.py … --config bench/configs/mixtral.json   that model, beside transformers' own of it
  train_bench.py --bin build/release/bin --before OLD/build/release/bin   two builds of Lockstep

One round runs Lockstep, then PyTorch (bench/fsdp2_step.py), each as a fresh job of the same shape:
by default 32 M parameters, 1024 tokens a step, 2 ranks of 1 thread; single is 1 rank of as many
threads with the same micro-batches. A job's figure is the median over its steps after the warm-up;
the ratio is taken within a round, so that a slow spell of the machine meets both. Memory is the
peak resident set of a rank. Prints one JSON line a job and a Markdown table at the end.
A case is STRATEGY-PRECISION, then -ac (activation checkpointing of every block, both sides) or
-compile (torch.compile; Lockstep as it is).
"""
import argparse
import json
import os
import pathlib
import platform
import statistics
import sys
import tempfile

import job

STRATEGY = {"fsdp": ("full_shard", "fsdp2"), "gradop": ("shard_grad_op", "fsdp2-keep"),
            "ddp": ("ddp", "ddp"), "single": ("single", "single")}
PRECISION = {"fp32": "float32", "bf16": "bfloat16"}


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--bin", type=pathlib.Path, required=True, help="folder of lockstep")
    parser.add_argument("--before", type=pathlib.Path, metavar="BIN",
                        help="folder of another build of lockstep, to run in PyTorch's place")
    parser.add_argument("--python", default=sys.executable, help="a Python that has torch")
    parser.add_argument("--cases", default="fsdp-fp32,fsdp-bf16,ddp-fp32,ddp-bf16,single-fp32,"
                        "single-bf16", help="STRATEGY-PRECISION, …")
    parser.add_argument("--config", type=pathlib.Path,
                        help="a config.json, in place of the model's sizes")
    parser.add_argument("--rounds", type=int, default=3)
    for name, value in (("steps", 8), ("warmup", 3), ("ranks", 2), ("dim", 512), ("layers", 8),
                        ("heads", 8), ("kv-heads", 4), ("ffn", 1408), ("vocab", 8192),
                        ("seq", 256), ("batch", 2), ("accumulate", 1)):
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--reduce-dtype", choices=("fp32", "bf16"), default="fp32",
                        help="of PyTorch's gradients in the bf16 cases; Lockstep's are bf16")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE",
                        help="one more key for Lockstep")
    a = parser.parse_args()
    for case in a.cases.split(","):
        strategy, precision, *_ = [*case.split("-"), ""]
        if strategy not in STRATEGY or precision not in PRECISION:
            parser.error(f"--cases {case}: STRATEGY is one of {', '.join(STRATEGY)}, "
                         f"PRECISION one of {', '.join(PRECISION)}")
    return a


def ranks_of(case, a):
    """(ranks, threads of each, micro-batches of each); one process does the work of all."""
    alone = case.startswith("single")
    return (1, a.ranks, a.ranks * a.accumulate) if alone else (a.ranks, 1, a.accumulate)


def model_keys(a, folder):
    if not a.config:
        return {"model.dim": a.dim, "model.n_layers": a.layers, "model.n_heads": a.heads,
                "model.n_kv_heads": a.kv_heads, "model.ffn_dim": a.ffn,
                "model.vocab_size": a.vocab}
    assets = folder / "assets"
    assets.mkdir(exist_ok=True)
    (assets / "config.json").write_bytes(a.config.read_bytes())
    return {"model.hf_assets_path": assets, "model.init": "random"}


def run_lockstep(case, a, programs, folder, name):
    strategy, precision, *options = case.split("-")
    ranks, threads, accumulate = ranks_of(case, a)
    keys = model_keys(a, folder) | {
        "training.seq_len": a.seq,
        "training.local_batch_size": a.batch, "training.slots": ranks * accumulate,
        "training.threads": threads,
        "activation_checkpoint.mode": "full" if "ac" in options else "none",
        "training.steps": a.warmup + a.steps, "training.max_norm": 1.0,
        "training.mixed_precision_param": PRECISION[precision],
        "parallelism.strategy": STRATEGY[strategy][0],
    }
    keys.update(pair.split("=", 1) for pair in a.set)
    lines, whole = job.train(programs.resolve(), folder, name, ranks, keys)
    timed = [line["step_time_s"] for line in lines[a.warmup:]]
    phases = whole["phases_s_per_step"]
    step_s = statistics.median(timed)
    return {"step_s": round(step_s, 4), "tokens_per_s": round(lines[-1]["tokens"] / step_s, 1),
            "tokens_per_step": lines[-1]["tokens"],
            "peak_rss_mib": round(whole["peak_rss_GB"] * 1e9 / 2**20),
            "losses": [round(lines[i]["loss"], 5) for i in (0, -1)],
            "phases_s": {key: round(s, 4) for key, s in phases.items()}}


def run_pytorch(case, a):
    strategy, precision, *options = case.split("-")
    ranks, threads, accumulate = ranks_of(case, a)
    flags = {"strategy": STRATEGY[strategy][1], "precision": precision, "batch": a.batch,
             "reduce-dtype": a.reduce_dtype, "accumulate": accumulate, "threads": threads}
    for name in ("steps", "warmup", "dim", "layers", "heads", "kv_heads", "ffn", "vocab", "seq"):
        flags[name.replace("_", "-")] = getattr(a, name)
    if a.config:
        flags["config"] = a.config.resolve()
    environment = {"OMP_NUM_THREADS": str(threads), "PYTHONDONTWRITEBYTECODE": "1"}
    return job.pytorch(a.python, ranks, flags, options, environment)


def table(results, a):
    sizes = a.config.name if a.config else f"{a.layers} layers, dim {a.dim}, vocabulary {a.vocab}"
    yield (f"{sizes}, sequences of {a.seq}; "
           f"{platform.machine()}, {os.cpu_count()} cores; medians of {a.rounds} rounds")
    yield ""
    other = "before" if a.before else "PyTorch"
    yield (f"| case | ranks x threads | Lockstep tokens/s | {other} tokens/s | ratio (rounds) | "
           f"Lockstep MiB | {other} MiB | ratio |")
    yield "| --- | --- | --- | --- | --- | --- | --- | --- |"
    for case, rounds in results.items():
        ours, theirs = ([r[side]["tokens_per_s"] for r in rounds] for side in (0, 1))
        ratios = [x / y for x, y in zip(ours, theirs)]
        mib = [statistics.median(r[side]["peak_rss_mib"] for r in rounds) for side in (0, 1)]
        ranks, threads, _ = ranks_of(case, a)
        yield (f"| {case} | {ranks} x {threads} | {statistics.median(ours):.0f} | "
               f"{statistics.median(theirs):.0f} | **{statistics.median(ratios):.2f}** "
               f"({', '.join(f'{x:.2f}' for x in ratios)}) | {mib[0]:.0f} | {mib[1]:.0f} | "
               f"{mib[0] / mib[1]:.2f} |")


def main():
    a = arguments()
    results = {case: [] for case in a.cases.split(",")}
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        job.prepare_tokens((a.before or a.bin).resolve(), folder)  # what both can read
        for round_number in range(a.rounds):
            for case, rounds in results.items():
                name = f"{case}-{round_number}"
                pair = (run_lockstep(case, a, a.bin, folder, name),
                        run_lockstep(case, a, a.before, folder, f"{name}-before") if a.before
                        else run_pytorch(case, a))
                if pair[0]["tokens_per_step"] != pair[1]["tokens_per_step"]:
                    raise SystemExit(f"{case}: the two sides differ in tokens a step: {pair}")
                rounds.append(pair)
                for side, result in zip(("lockstep", "before" if a.before else "pytorch"), pair):
                    print(json.dumps({"case": case, "round": round_number, "side": side,
                                      "load": round(os.getloadavg()[0], 2), **result}), flush=True)
    print("\n" + "\n".join(table(results, a)))


main()
