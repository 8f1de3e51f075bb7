#!/usr/bin/env python3
"""How fast things start. Python's standard library only.

  start_bench.py --bin build/release/bin --config examples/demo.toml --data .cache/…_tokens

1. From the start of `lockstep train` to the start and the end of its first step.
2. `lockstep --help`, median of 20, and /bin/true for comparison.

Prints one JSON line a trial and one line of medians. Times are wall-clock seconds.
"""
import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

import job

STEP_TIMEOUT_S = 240
POLL_S = 0.002
HELP_RUNS = 20


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--bin", type=pathlib.Path, required=True, help="folder of lockstep")
    parser.add_argument("--config", type=pathlib.Path, required=True)
    parser.add_argument("--data", type=pathlib.Path, required=True, help="made by prepare")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--trials", type=int, default=4)
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE",
                        help="one more key for Lockstep")
    return parser.parse_args()


def wait_for(what, look, process):
    """The first true result of look(). The run may not end before."""
    deadline = time.time() + STEP_TIMEOUT_S
    while True:
        found = look()
        if found:
            return found
        if process.poll() is not None or time.time() > deadline:
            raise SystemExit(f"waited for {what}; the run ended with {process.poll()}")
        time.sleep(POLL_S)


def trial(a, folder, number):
    run = folder / f"run_{number}"
    words = [a.bin / "lockstep", "train", a.config, "--data.path", a.data, "--job.dump_folder", run,
             "--nproc-per-node", a.ranks, "--training.steps", 100000, "--validation.freq", 0]
    words += [f"--{pair}" for pair in a.set]
    began = time.time()
    with open(f"{run}.log", "w") as log:
        process = subprocess.Popen([str(word) for word in words], stdout=log, stderr=log)
    try:
        first = wait_for("the first step", lambda: job.lines_of(run / "metrics.jsonl"), process)[0]
    finally:
        job.stop(process)
    return {"first_step_begins_s": first["t"] - first["step_time_s"] - began,
            "first_step_done_s": first["t"] - began}


def seconds_of(command):
    began = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - began


def main():
    a = arguments()
    a.bin, a.config, a.data = a.bin.resolve(), a.config.resolve(), a.data.resolve()
    help_s = statistics.median(seconds_of([a.bin / "lockstep", "--help"]) for _ in range(HELP_RUNS))
    true_s = statistics.median(seconds_of(["/bin/true"]) for _ in range(HELP_RUNS))
    medians = {"help_ms": help_s * 1e3, "bin_true_ms": true_s * 1e3}
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        results = []
        for number in range(a.trials):
            results.append(trial(a, folder, number))
            print(json.dumps(results[-1]), flush=True)
        for key in results[0]:
            medians[key] = statistics.median(r[key] for r in results)
    print(json.dumps({"medians": {k: round(v, 4) for k, v in medians.items()},
                      "trials": a.trials, "ranks": a.ranks, "load": os.getloadavg()[0]}))


if __name__ == "__main__":
    sys.exit(main())
