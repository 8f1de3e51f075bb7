#!/usr/bin/env python3
"""Memory of a rank under ddp and under full_shard, at the stages that a run logs.

  memory_table.py --bin build/release/bin
  memory_table.py --bin build/release/bin --ranks 4 --dim 256 --layers 96 --json

Trains a stack of linear layers (model.name = linear), whose memory is that of parameters,
gradients and optimizer state: with N ranks, full_shard keeps 1/N of each. (Under ddp as well a
rank keeps the gradient sums of its own tiles only, and has the whole sum during the update: in
the peak.) Figures are what is allocated at that moment (of tensors, by the counting allocator), the
most of any rank; "peak" is the most so far. Buffers are of a unit's size whatever N is: the more
layers, the less they count. Prints a Markdown table, or JSON.
"""
import argparse
import json
import pathlib
import tempfile

import job

STAGES = ("after data creation", "after model creation", "after warmup", "after checkpoint",
          "after training")
STRATEGIES = ("ddp", "full_shard")


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--bin", type=pathlib.Path, required=True, help="folder of lockstep")
    parser.add_argument("--tokens", type=pathlib.Path, help="made by lockstep prepare; else random")
    for name, value in (("ranks", 4), ("dim", 512), ("layers", 64), ("steps", 2)):
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--json", action="store_true", help="print JSON instead of the table")
    return parser.parse_args()


def stage_lines(folder):
    """[{stage: …, rank: …}] of every rank's log."""
    for log in sorted((folder / "logs").glob("rank_*.log")):
        for line in log.read_text(errors="replace").splitlines():
            at = line.find('{"stage"')
            if at >= 0:
                yield json.loads(line[at:])


def run(strategy, a, folder, tokens):
    """{"parameters": P, "stages": {stage: {"allocated": bytes, "peak": bytes, "rss": bytes}}}"""
    keys = {
        "data.path": tokens, "model.name": "linear", "model.dim": a.dim,
        "model.n_layers": a.layers, "training.seq_len": 16, "training.local_batch_size": 1,
        "training.slots": a.ranks, "training.steps": a.steps, "parallelism.strategy": strategy,
    }
    job.train(a.bin, folder, strategy, a.ranks, keys, checkpoints=True)
    stages = {stage: {"allocated": 0, "peak": 0, "rss": 0} for stage in STAGES}
    ranks = set()
    for line in stage_lines(folder / strategy):
        ranks.add(line["rank"])
        most = stages[line["stage"]]
        for name, key in (("allocated", "cuda_memory_allocated_GB"),
                          ("peak", "cuda_max_memory_allocated_GB"), ("rss", "cpu_memory_rss_GB")):
            most[name] = max(most[name], round(line[key] * 1e9))
    if ranks != set(range(a.ranks)):
        raise SystemExit(f"stage lines of ranks {sorted(ranks)}, not of {a.ranks}")
    arguments_of_run = json.loads((folder / strategy / "run_args.json").read_text())
    return {"parameters": arguments_of_run["parameters"], "stages": stages}


def table(results, a):
    parameters = results["ddp"]["parameters"]
    yield (f"linear, {a.layers} layers of {a.dim} x {a.dim}, {parameters / 1e6:.1f} M parameters, "
           f"fp32, {a.ranks} ranks; MB of a rank (bytes a parameter)")
    yield ""
    yield "| stage | ddp | full_shard | ratio | ddp peak | full_shard peak | ratio |"
    yield "| --- | --- | --- | --- | --- | --- | --- |"

    def cell(size):
        return f"{size / 1e6:.1f} ({size / parameters:.1f})"
    for stage in STAGES:
        ddp, sharded = (results[strategy]["stages"][stage] for strategy in STRATEGIES)
        cells = []
        for what in ("allocated", "peak"):
            cells += [cell(ddp[what]), cell(sharded[what]),
                      f"{sharded[what] / ddp[what]:.3f}" if ddp[what] else "-"]
        yield " | ".join([f"| {stage}", *cells]) + " |"


def main():
    a = arguments()
    a.bin = a.bin.resolve()
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        if not a.tokens:
            job.prepare_tokens(a.bin, folder)
        tokens = a.tokens or folder / "tokens"
        results = {strategy: run(strategy, a, folder, tokens) for strategy in STRATEGIES}
    print(json.dumps(results) if a.json else "\n".join(table(results, a)))


main()
