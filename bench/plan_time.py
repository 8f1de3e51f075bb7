#!/usr/bin/env python3
"""Step times that `lockstep plan --device FILE` predicts on this CPU, beside measured ones.

  plan_time.py --bin build/release/bin
  plan_time.py --bin NEW/bin --worker-bin OLD/bin --only bf16 --rounds 3

The rates of FILE are measured in the same run: products by `lockstep doctor` with a rank's threads,
before and after each job, and copies, by as many CPUs as the job has threads. What doctor does not
measure (how fast attention's small products, exp() and our kernels are beside the large products)
is in KERNELS below, once for all configs. A job's figure is the median of its steps after the
warm-up. On a machine that others use, both sides suffer, and not alike: the load is printed, and a
table with load is no proof.
"""
import argparse
import json
import os
import pathlib
import statistics
import subprocess
import tempfile

import job

LLAMA = {"model.dim": 512, "model.n_layers": 6, "model.n_heads": 8, "model.n_kv_heads": 4,
         "model.ffn_dim": 1408, "model.vocab_size": 8192}
WIDE = LLAMA | {"model.dim": 768, "model.n_layers": 3, "model.n_heads": 12, "model.n_kv_heads": 12,
                "model.ffn_dim": 2048, "model.vocab_size": 16384}
LINEAR = {"model.name": "linear", "model.dim": 1024, "model.n_layers": 8, "model.n_heads": 8,
          "model.vocab_size": 1024}
BF16 = {"training.mixed_precision_param": "bfloat16"}
SLOT = {"training.seq_len": 256, "training.local_batch_size": 2, "training.slots": 1,
        "training.threads": 1, "training.max_norm": 1.0}
SINGLE = SLOT | {"parallelism.strategy": "single"}
CONFIGS = {  # name: (ranks, keys)
    "llama, fp32": (1, SINGLE | LLAMA),
    "llama, bf16": (1, SINGLE | LLAMA | BF16),
    "llama, bf16, T = 1024": (1, SINGLE | LLAMA | BF16 | {"training.seq_len": 1024,
                                                          "training.local_batch_size": 1}),
    "llama, bf16, checkpointing": (1, SINGLE | LLAMA | BF16 | {
        "activation_checkpoint.mode": "full"}),
    "wide, fp32, tied": (1, SINGLE | WIDE | {"model.tie_word_embeddings": "true"}),
    "wide, bf16, 2 slots": (1, SINGLE | WIDE | BF16 | {"training.slots": 2}),
    "llama, fp32, 2 threads": (1, SINGLE | LLAMA | {"training.threads": 2}),
    "linear, fp32": (1, SINGLE | LINEAR),
    "llama, full_shard, fp32": (2, SLOT | LLAMA | {"training.slots": 2,
                                                   "parallelism.strategy": "full_shard"}),
    "llama, ddp, bf16": (2, SLOT | LLAMA | BF16 | {"training.slots": 2,
                                                   "parallelism.strategy": "ddp"}),
}
# Of our kernels beside what doctor measures.
KERNELS = {"attention_share": 0.55, "attention_backward_share": 0.55, "bf16_kernel_share": 1.0,
           "fp32_kernel_share": 1.0, "kernel_us": 6.0}
EXPS_PER_NS = 1.0  # of a thread


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--bin", type=pathlib.Path, required=True, help="folder of lockstep")
    parser.add_argument("--worker-bin", type=pathlib.Path,
                        help="folder of the lockstep and lockstep-worker that are measured")
    parser.add_argument("--only", default="", help="configs whose name has this")
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--warmup", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=1)
    return parser.parse_args()


def doctor(binaries, folder, threads, cpus):
    """What `lockstep doctor` finds of as many CPUs: one has more than its share of the memory's
    bandwidth while the others rest."""
    of_all = os.sched_getaffinity(0)
    os.sched_setaffinity(0, sorted(of_all)[:cpus])
    try:
        done = subprocess.run([binaries / "lockstep", "doctor", folder / "empty.toml", "--json",
                               "--training.threads", str(threads), "--model.vocab_size", "256",
                               "--job.dump_folder", folder], capture_output=True, text=True,
                              timeout=300)
    finally:
        os.sched_setaffinity(0, of_all)
    return json.loads(done.stdout)["nodes"][0]["facts"]


def rates_of(before, after, ranks, threads):
    """The keys of FILE: the mean of what was measured before and after."""
    def mean(room, key):
        return statistics.mean(facts[room][key] for facts in (before, after))
    fp32, bf16 = mean("compute", "fp32_tflops"), mean("compute", "bf16_tflops")
    memory_gb = mean("memory", "copy_bytes_per_s") * 1e-9 / ranks  # read and written
    return KERNELS | {
        "bf16_peak_tflops": bf16, "bf16_gemm_tflops": bf16, "fp32_gemm_tflops": fp32,
        "memory_gb_per_s": memory_gb, "exponentials_per_ns": EXPS_PER_NS * threads,
        "launch_us": 0, "multiprocessors": 0, "compute_capability": 0, "memory_gib": 4,
        "context_gib": 0, "ranks_per_node": ranks, "node_gb_per_s": memory_gb / 4,
        "network_gb_per_s": 1, "collective_us": 50, "host_link_gb_per_s": memory_gb,
        "host_memory_gb_per_s": memory_gb, "host_network_gb_per_s": memory_gb / 4,
        "host_collective_us": 300}


def predicted(binaries, folder, rates, ranks, keys):
    file = folder / "cpu.toml"
    file.write_text("".join(f"{key} = {value}\n" for key, value in rates.items()))
    words = [str(word) for key, value in keys.items() for word in (f"--{key}", value)]
    done = subprocess.run([binaries / "lockstep", "plan", folder / "empty.toml", *words,
                           "--world-size", str(ranks), "--device", file, "--json"],
                          capture_output=True, text=True, timeout=60)
    if done.returncode != 0:
        raise SystemExit(done.stdout + done.stderr)
    return json.loads(done.stdout)["device"]


def measure(a, folder, name, ranks, keys):
    threads = keys["training.threads"]
    worker = (a.worker_bin or a.bin).resolve()
    load = os.getloadavg()[0]
    before = doctor(worker, folder, threads, ranks * threads)
    lines, whole = job.train(worker, folder, name, ranks,
                             keys | {"training.steps": a.warmup + a.steps})
    after = doctor(worker, folder, threads, ranks * threads)
    rates = rates_of(before, after, ranks, threads)
    times = sorted(line["step_time_s"] for line in lines[a.warmup:])
    plan = predicted(a.bin.resolve(), folder, rates, ranks, keys)
    median = statistics.median(times)
    return {"predicted_s": plan["step_s"], "median_s": median, "fastest_s": times[0],
            "ratio": plan["step_s"] / median, "load": round(load, 1),
            "fp32_gflops": round(1e3 * rates["fp32_gemm_tflops"]),
            "bf16_gflops": round(1e3 * rates["bf16_gemm_tflops"]),
            "memory_gb_per_s": round(rates["memory_gb_per_s"], 1),
            "phases_measured_s": whole["phases_s_per_step"],
            "phases_predicted_s": {p["phase"]: round(p["seconds"], 5) for p in plan["phases"]}}


def main():
    a = arguments()
    results = {name: [] for name in CONFIGS if a.only in name}
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        (folder / "empty.toml").write_text("")
        job.prepare_tokens((a.worker_bin or a.bin).resolve(), folder)
        for number in range(a.rounds):
            for index, (name, runs) in enumerate(results.items()):
                ranks, keys = CONFIGS[name]
                runs.append(measure(a, folder, f"{index}-{number}", ranks, keys))
                print(json.dumps({"config": name, "round": number, **runs[-1]}), flush=True)
    print("\n| config | ranks x threads | predicted s | measured s, median (fastest) | "
          "predicted / measured | load |\n| --- | --- | --- | --- | --- | --- |")
    for name, runs in results.items():
        ranks, keys = CONFIGS[name]
        best = sorted(runs, key=lambda r: r["load"])[0]
        ratios = ", ".join(f"{r['ratio']:.2f}" for r in runs)
        print(f"| {name} | {ranks} x {keys['training.threads']} | {best['predicted_s']:.3f} | "
              f"{best['median_s']:.3f} ({best['fastest_s']:.3f}) | "
              f"{ratios} | {best['load']} |")


main()
