#!/usr/bin/env python3
"""A step on several nodes behind slow cards: Lockstep and PyTorch, in turns on the same machine.

  nodes_bench.py --bin build/release/bin --python .deps/reference/bin/python3
  nodes_bench.py … --nodes 2x2,2x4 --precision bf16 --cases full_shard,fsdp2
  nodes_bench.py … --rounds 1,4 --cases full_shard/group_block,full_shard/group_block/node,fsdp2

Nodes are network namespaces of this machine (tests/chaos/hosts.py): NxL is N nodes of L ranks with
one thread each. tc limits each card to --rate both ways and, where the kernel has netem, delays
what leaves it by --delay. A case is a strategy of Lockstep, with a slot map where it is not
cyclic, and then parallelism.reshard_after_forward where it is not world; or fsdp2: PyTorch
(bench/fsdp2_step.py). All have --rounds slots a rank in a step, of --batch x --seq tokens. Seconds
are the median of the steps after the warm-up; megabytes are what came into the busiest node's card
(its kernel's count over the whole job, through its steps). Prints
one JSON line a job and a Markdown table at the end. Needs root or user namespaces, ip, tc, nsenter;
ends with 77 without.
"""
import argparse
import itertools
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

import job

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1] / "tests/chaos"))
import hosts  # noqa: E402

PORT = 29555
PRECISION = {"fp32": "float32", "bf16": "bfloat16"}


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--bin", type=pathlib.Path, required=True, help="folder of lockstep")
    parser.add_argument("--python", type=os.path.abspath, default=sys.executable,
                        help="a Python that has torch")
    parser.add_argument("--nodes", default="2x2,2x4", help="NODESxRANKS, …")
    parser.add_argument("--cases", default="full_shard,hybrid,fsdp2")
    parser.add_argument("--precision", default="bf16", help="fp32, bf16, or both: fp32,bf16")
    parser.add_argument("--rate", default="1gbit")
    parser.add_argument("--delay", default="", help="such as 0.2ms; none without it")
    parser.add_argument("--rounds", default="1", help="slots a rank: 1, 4, or both: 1,4")
    for name, value in (("repeat", 1), ("steps", 5), ("warmup", 2), ("dim", 512), ("layers", 8),
                        ("heads", 8), ("kv-heads", 4), ("ffn", 1408), ("vocab", 8192),
                        ("seq", 256), ("batch", 1)):
        parser.add_argument(f"--{name}", type=int, default=value)
    return parser.parse_args()


def limit(host, a):
    """Both ways: what leaves the node, and what comes in."""
    bucket = ("tbf", "rate", a.rate, "burst", "256kb", "latency", "100ms")
    host.must("tc", "qdisc", "add", "dev", "eth0", "root", "handle", "1:", *bucket)
    if a.delay:
        host.must("tc", "qdisc", "add", "dev", "eth0", "parent", "1:", "netem", "delay", a.delay,
                  "limit", "100000")
    hosts.lab.must("tc", "qdisc", "add", "dev", host.link, "root", *bucket)


def card_bytes(host):
    said = json.loads(host.must("ip", "-s", "-j", "link", "show", "eth0"))
    return said[0]["stats64"]["rx"]["bytes"]


def ranks_on(net, local, command, environment, log):
    """Runs `command` as every rank; returns what rank 0 printed and MB into the busiest card."""
    before = [card_bytes(host) for host in net]
    world = len(net) * local
    running = []
    for rank in range(world):
        host = net[rank // local]
        variables = {"RANK": rank, "WORLD_SIZE": world, "LOCAL_RANK": rank % local,
                     "LOCAL_WORLD_SIZE": local, "MASTER_ADDR": net[0].address,
                     "MASTER_PORT": PORT, "GLOO_SOCKET_IFNAME": "eth0", "OMP_NUM_THREADS": 1,
                     **environment}
        words = ["env", *(f"{name}={value}" for name, value in variables.items()), *command]
        with open(log.with_suffix(f".{rank}"), "w", encoding="utf-8") as out:
            running.append(subprocess.Popen(host.inside(*words), stdout=out, stderr=out))
    try:
        ends = [one.wait(job.JOB_TIMEOUT_S) for one in running]
    finally:
        for one in running:
            one.kill()
            one.wait()
    if any(ends):
        rank = next(r for r, end in enumerate(ends) if end)
        raise SystemExit(f"rank {rank} ended with {ends[rank]}:\n"
                         + log.with_suffix(f".{rank}").read_text()[-3000:])
    moved = max(card_bytes(host) - was for host, was in zip(net, before)) / 1e6
    return log.with_suffix(".0").read_text(), moved


def run_lockstep(case, precision, rounds, net, local, a, folder, name):
    strategy, slot_map, reshard = case.split("/") + ["cyclic", "world"][case.count("/"):]
    keys = {"job.dump_folder": folder / name, "data.path": folder / "tokens",
            "model.dim": a.dim, "model.n_layers": a.layers, "model.n_heads": a.heads,
            "model.n_kv_heads": a.kv_heads, "model.ffn_dim": a.ffn, "model.vocab_size": a.vocab,
            "training.seq_len": a.seq, "training.local_batch_size": a.batch,
            "training.slots": len(net) * local * rounds, "training.threads": 1,
            "training.steps": a.warmup + a.steps, "training.max_norm": 1.0,
            "training.mixed_precision_param": PRECISION[precision],
            "parallelism.strategy": strategy, "parallelism.slot_map": slot_map,
            "parallelism.reshard_after_forward": reshard}
    words = [str(word) for key, value in keys.items() for word in (f"--{key}", value)]
    (folder / "empty.toml").write_text("")
    _, moved = ranks_on(net, local, [a.bin.resolve() / "lockstep", "train", folder / "empty.toml",
                                     *words, "--checkpoint.no_enable"], {}, folder / f"{name}.log")
    lines = job.lines_of(folder / name / "metrics.jsonl")
    step_s = statistics.median(line["step_time_s"] for line in lines[a.warmup:])
    return {"step_s": step_s, "card_mb": moved / len(lines),
            "loss_hex": lines[-1]["loss_hex"], "phases_s": lines[-1].get("phases_s")}


def run_pytorch(precision, rounds, net, local, a, folder, name):
    flags = {"strategy": "fsdp2", "precision": precision, "accumulate": rounds, "threads": 1}
    for key in ("steps", "warmup", "dim", "layers", "heads", "kv_heads", "ffn", "vocab", "seq",
                "batch"):
        flags[key.replace("_", "-")] = getattr(a, key)
    words = [str(word) for key, value in flags.items() for word in (f"--{key}", value)]
    printed, moved = ranks_on(net, local, [a.python, job.HERE / "fsdp2_step.py", *words],
                              {"PYTHONDONTWRITEBYTECODE": 1}, folder / f"{name}.log")
    found = [line for line in printed.splitlines() if line.startswith("{")]
    return {"step_s": json.loads(found[-1])["step_s"], "card_mb": moved / (a.warmup + a.steps)}


def table(results, a):
    yield (f"{a.layers} layers, dim {a.dim}, vocabulary {a.vocab}; slots of {a.batch} x {a.seq} "
           f"tokens; {a.rate}, {a.delay or 'no'} delay; {os.cpu_count()} cores")
    yield ""
    yield ("| nodes x ranks | precision | slots a rank | case | step, s | MB into a card a step | "
           "step over fsdp2's | MB over fsdp2's |")
    yield "| --- | --- | --- | --- | --- | --- | --- | --- |"
    for (*where, case), turns in results.items():
        peers = results.get((*where, "fsdp2"))
        step, moved = (statistics.median(r[key] for r in turns) for key in ("step_s", "card_mb"))
        share = ["", ""]
        if peers and case != "fsdp2":
            share = [f"{statistics.median(r[k] / p[k] for r, p in zip(turns, peers)):.2f}"
                     for k in ("step_s", "card_mb")]
        yield (f"| {' | '.join(map(str, where))} | {case} | {step:.2f} | {moved:.0f} | "
               f"{share[0]} | {share[1]} |")


def same_bits(results):
    """Of Lockstep's cases with the same slots."""
    losses = {}
    for (*where, _), turns in results.items():
        losses.setdefault(tuple(where), set()).update(
            r["loss_hex"] for r in turns if "loss_hex" in r)
    for where, found in losses.items():
        if len(found) > 1:
            raise SystemExit(f"{where}: the last losses differ: {found}")


def main():
    a = arguments()
    hosts.lab.enter((*hosts.PROGRAMS, "tc"))
    shapes = [tuple(map(int, one.split("x"))) for one in a.nodes.split(",")]
    net = hosts.hosts(max(nodes for nodes, _ in shapes))
    for host in net:
        limit(host, a)
    results = {}
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        job.prepare_tokens(a.bin.resolve(), folder)
        jobs = itertools.product(range(a.repeat), shapes, a.precision.split(","),
                                 map(int, a.rounds.split(",")), a.cases.split(","))
        for turn, (nodes, local), precision, rounds, case in jobs:
            name = f"{case.replace('/', '_')}-{nodes}x{local}-{precision}-{rounds}-{turn}"
            how = precision, rounds, net[:nodes], local, a, folder, name
            one = run_pytorch(*how) if case == "fsdp2" else run_lockstep(case, *how)
            results.setdefault((f"{nodes} x {local}", precision, rounds, case), []).append(one)
            print(json.dumps({"case": case, "nodes": nodes, "ranks": local, "rounds": rounds,
                              "precision": precision, "turn": turn, **one}), flush=True)
        same_bits(results)
    print("\n" + "\n".join(table(results, a)))


main()
