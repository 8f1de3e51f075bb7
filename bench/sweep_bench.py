#!/usr/bin/env python3
"""The table of FSDP tutorials: DDP and full sharding by batch size, Lockstep beside PyTorch.

  sweep_bench.py --bin build/release/bin --python .deps/reference/bin/python3
  sweep_bench.py … --batches 1,2,4,8 --rounds 3 --steps 6 --precision bf16

For each batch size in turn, on the same machine: `lockstep sweep` over ddp and full_shard, then
PyTorch (bench/fsdp2_step.py) with DDP and FSDP2, on 2 ranks of 1 thread; 10 M parameters where
nothing else is said. A step is the median of a run's steps after the first (Lockstep: all but the
first; PyTorch: after two that warm up); the table has the medians of the rounds, and the ratio is
taken within a round. Memory is the peak resident set of a rank; of Lockstep beside it what its
tensors took. Prints one JSON line a row and a Markdown table at the end.
"""
import argparse
import json
import os
import pathlib
import statistics
import subprocess
import tempfile

import job

STRATEGIES = {"ddp": "ddp", "full_shard": "fsdp2"}
PRECISION = {"fp32": "float32", "bf16": "bfloat16"}
WARMUP = 2


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--bin", type=pathlib.Path, required=True, help="folder of lockstep")
    parser.add_argument("--python", required=True, help="a Python that has torch")
    parser.add_argument("--batches", default="1,2,4,8", help="sequences of a rank's step")
    parser.add_argument("--precision", choices=PRECISION, default="fp32")
    for name, value in (("rounds", 3), ("steps", 6), ("ranks", 2), ("dim", 256), ("layers", 8),
                        ("heads", 8), ("kv-heads", 4), ("ffn", 704), ("vocab", 8192),
                        ("seq", 256)):
        parser.add_argument(f"--{name}", type=int, default=value)
    return parser.parse_args()


def run_lockstep(a, folder, batch, out):
    """{strategy: figures} of one sweep."""
    keys = {
        "data.path": folder / "tokens", "model.dim": a.dim, "model.n_layers": a.layers,
        "model.n_heads": a.heads, "model.n_kv_heads": a.kv_heads, "model.ffn_dim": a.ffn,
        "model.vocab_size": a.vocab, "training.seq_len": a.seq, "training.slots": a.ranks,
        "training.threads": 1, "training.max_norm": 1.0,
        "training.mixed_precision_param": PRECISION[a.precision],
        "activation_checkpoint.mode": "none",
    }
    (folder / "empty.toml").write_text("")
    done = subprocess.run(
        [a.bin.resolve() / "lockstep", "sweep", folder / "empty.toml",
         *(f"--{key}={value}" for key, value in keys.items()), "--nproc-per-node", str(a.ranks),
         "--over", f"training.local_batch_size={batch}",
         "--over", f"parallelism.strategy={','.join(STRATEGIES)}",
         "--steps", str(a.steps + WARMUP), "--out", out, "--json"],
        capture_output=True, text=True, timeout=job.JOB_TIMEOUT_S, check=False)
    if done.returncode != 0:
        raise SystemExit(f"lockstep sweep: {done.returncode}\n{done.stdout}\n{done.stderr}")
    found = {}
    for row in json.loads(done.stdout)["rows"]:
        whole = json.loads((out / row["name"] / "metrics.json").read_text())
        found[row["values"]["parallelism.strategy"]] = {
            "step_s": row["step_time_s"], "tokens_per_s": row["tokens_per_s"],
            "mib": whole["peak_rss_GB"] * 1e9 / 2**20,
            "tensors_mib": row["peak_memory_bytes"] / 2**20}
    return found


def run_pytorch(a, strategy, batch):
    flags = {"strategy": STRATEGIES[strategy], "precision": a.precision, "batch": batch,
             "warmup": WARMUP, "threads": 1}
    for name in ("steps", "dim", "layers", "heads", "kv_heads", "ffn", "vocab", "seq"):
        flags[name.replace("_", "-")] = getattr(a, name)
    result = job.pytorch(a.python, a.ranks, flags, [],
                         {"OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1"})
    return {"step_s": result["step_s"], "tokens_per_s": result["tokens_per_s"],
            "mib": result["peak_rss_mib"]}


def table(results, a):
    yield (f"{a.layers} layers, dim {a.dim}, vocabulary {a.vocab}, sequences of {a.seq}, "
           f"{a.precision}; {a.ranks} ranks of 1 thread, {os.cpu_count()} cores; medians of "
           f"{a.rounds} rounds")
    yield ""
    yield ("| batch of a rank | strategy | Lockstep s | PyTorch s | Lockstep tokens/s | PyTorch "
           "tokens/s | ratio (rounds) | Lockstep MiB (tensors) | PyTorch MiB | ratio |")
    yield "|" + " --- |" * 10
    for (batch, strategy), rounds in results.items():
        def middle(side, key, rounds=rounds):
            return statistics.median(pair[side][key] for pair in rounds)
        ratios = [ours["tokens_per_s"] / theirs["tokens_per_s"] for ours, theirs in rounds]
        yield (f"| {batch} | {strategy} / {STRATEGIES[strategy]} | {middle(0, 'step_s'):.3f} | "
               f"{middle(1, 'step_s'):.3f} | {middle(0, 'tokens_per_s'):.0f} | "
               f"{middle(1, 'tokens_per_s'):.0f} | **{statistics.median(ratios):.2f}** "
               f"({', '.join(f'{x:.2f}' for x in ratios)}) | {middle(0, 'mib'):.0f} "
               f"({middle(0, 'tensors_mib'):.0f}) | {middle(1, 'mib'):.0f} | "
               f"{middle(0, 'mib') / middle(1, 'mib'):.2f} |")


def main():
    a = arguments()
    results = {(int(batch), strategy): [] for batch in a.batches.split(",")
               for strategy in STRATEGIES}
    with tempfile.TemporaryDirectory() as made:
        folder = pathlib.Path(made)
        job.prepare_tokens(a.bin.resolve(), folder)
        for number in range(a.rounds):
            for batch in sorted({batch for batch, _ in results}):
                ours = run_lockstep(a, folder, batch, folder / f"round_{number}_{batch}")
                for strategy in STRATEGIES:
                    pair = (ours[strategy], run_pytorch(a, strategy, batch))
                    results[batch, strategy].append(pair)
                    print(json.dumps({"batch": batch, "strategy": strategy, "round": number,
                                      "load": round(os.getloadavg()[0], 2), "lockstep": pair[0],
                                      "pytorch": pair[1]}), flush=True)
    print("\n" + "\n".join(table(results, a)))


main()
