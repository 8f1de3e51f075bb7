#!/usr/bin/env python3
"""What audits and digests cost in CPU seconds. Python's standard library only.

  audit_cost.py --bin build/release/bin [--rounds 3] [--set KEY=VALUE …]

Measured, in turns: a short run, a longer one, and the longer one with an audit of every step, each
with one slot a rank (V = W). The difference of the first two is what steps cost, that of the last
two what audits cost, of the slot and of the state. CPU seconds are those of all processes of a job
(wait4). Then digest_bench: what an update's digests add to it, and what a fingerprint takes, for
each element. Modelled from these: the digests of a step, and the state's part of an audit, as
shares of a step.

Prints one JSON line a round and one of medians.
"""
import argparse
import json
import pathlib
import resource
import statistics
import subprocess
import tempfile

import job

# About the shape of docs/PERFORMANCE.md, with the small vocabulary of the tokens at hand.
KEYS = {"model.dim": 512, "model.n_layers": 8, "model.n_heads": 8, "model.n_kv_heads": 4,
        "model.ffn_dim": 1408, "training.seq_len": 256, "metrics.log_freq": 1,
        "metrics.enable_tensorboard": "false", "validation.freq": 0, "training.threads": 1}
INTERVAL = 100  # of which the docs speak


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--bin", type=pathlib.Path, required=True, help="folder of lockstep")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--tokens", type=int, default=1024, help="of a step")
    parser.add_argument("--steps", type=int, default=20, help="more in the longer runs")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE",
                        help="one more key")
    return parser.parse_args()


def cpu_seconds():
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def trial(a, folder, name, steps, interval):
    """CPU seconds of a run, and its number of audits and of parameters."""
    keys = KEYS | {
        "training.steps": steps, "audit.interval": interval, "training.slots": a.ranks,
        "training.local_batch_size": a.tokens // a.ranks // KEYS["training.seq_len"],
        **dict(pair.split("=", 1) for pair in a.set)}
    before = cpu_seconds()
    lines, _ = job.train(a.bin, folder, name, a.ranks, keys)
    return cpu_seconds() - before, sum("audit" in line for line in lines)


def one_round(a, folder, number):
    short, _ = trial(a, folder, f"short_{number}", 2, 0)
    longer, _ = trial(a, folder, f"longer_{number}", 2 + a.steps, 0)
    audited, audits = trial(a, folder, f"audited_{number}", 2 + a.steps, 1)
    done = subprocess.run([a.bin / "digest_bench"], check=True, capture_output=True, text=True)
    return {"step_cpu_s": (longer - short) / a.steps, "audit_cpu_s": (audited - longer) / audits,
            **{key: value for key, value in json.loads(done.stdout).items() if key != "sum"}}


def main():
    a = arguments()
    with tempfile.TemporaryDirectory() as where:
        folder = pathlib.Path(where)
        job.prepare_tokens(a.bin, folder)
        rounds = []
        for number in range(a.rounds):
            rounds.append(one_round(a, folder, number))
            print(json.dumps(rounds[-1]), flush=True)
        args = json.loads((folder / "longer_0/run_args.json").read_text())
    medians = {key: statistics.median(each[key] for each in rounds) for key in rounds[0]}
    medians["parameters"] = args["parameters"]
    medians["audits_share"] = medians["audit_cpu_s"] / INTERVAL / medians["step_cpu_s"]
    medians["digests_share"] = (1e-9 * args["parameters"] * medians["digests_ns"]
                                / medians["step_cpu_s"])
    # Weights and both moments twice; what two rounds gathered, and what one shipped and received.
    elements = args["parameters"] * (6 + 4 * a.ranks)
    medians["state_share"] = (1e-9 * elements * medians["fingerprint_ns"] / INTERVAL
                              / medians["step_cpu_s"])
    print(json.dumps(medians))


main()
