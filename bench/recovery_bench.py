#!/usr/bin/env python3
"""How long a death costs, and how fast things start. Python's standard library only.

  recovery_bench.py --bin build/release/bin --config examples/demo.toml --data .cache/…_tokens

1. `lockstep launch` on --ranks ranks; after a committed checkpoint one worker is SIGKILLed; the
   time from the kill to the agent's notice, to the new workers, and to the next completed step.
   Ranks are killed in turn. That step's own duration is shown beside.
2. From the start of `lockstep train` to the start and the end of its first step.
3. `lockstep --help`, median of 20, and /bin/true for comparison.

Prints one JSON line a trial and one line of medians. Times are wall-clock seconds.
"""
import argparse
import json
import os
import pathlib
import signal
import statistics
import subprocess
import sys
import tempfile
import time

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
    parser.add_argument("--interval", type=int, default=5, help="steps between checkpoints")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE",
                        help="one more key for Lockstep")
    return parser.parse_args()


def lines_of(path):
    """The whole lines of a file of JSON objects; none while it does not exist."""
    try:
        text = path.read_text()
    except FileNotFoundError:
        return []
    return [json.loads(line) for line in text[:text.rfind("\n") + 1].splitlines()]


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


def start(a, command, run, steps):
    words = [a.bin / "lockstep", command, a.config, "--data.path", a.data, "--job.dump_folder", run,
             "--nproc-per-node", a.ranks, "--training.steps", steps, "--validation.freq", 0,
             "--checkpoint.interval", a.interval]
    for pair in a.set:
        words += [f"--{pair}"]
    log = open(f"{run}.log", "w")
    return subprocess.Popen([str(word) for word in words], stdout=log, stderr=log)


def stop(process):
    process.send_signal(signal.SIGTERM)
    try:
        process.wait(60)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def recovery_trial(a, folder, number):
    run = folder / f"recovery_{number}"
    process = start(a, "launch", run, 100000)
    try:
        checkpoints, metrics = run / "checkpoints", run / "metrics.jsonl"
        wait_for("a committed checkpoint", lambda: list(checkpoints.glob("*/manifest.json")),
                 process)
        done = len(lines_of(metrics))
        wait_for("one more step", lambda: len(lines_of(metrics)) > done, process)
        before = lines_of(metrics)
        victim = json.loads((run / "workers.json").read_text())["workers"][number % a.ranks]
        os.kill(victim["pid"], signal.SIGKILL)
        killed = time.time()
        lost = before[-1]["generation"]
        after = wait_for("the next step", lambda: [line for line in lines_of(metrics)
                                                   if line["generation"] > lost], process)[0]
        events = [e for e in lines_of(run / "events.jsonl") if e["t"] >= killed - 0.01]
    finally:
        stop(process)
    at = {e["event"]: e["t"] - killed for e in reversed(events)}  # the first of each
    redone = {line["step"]: line["loss_hex"] for line in before}
    if redone.get(after["step"], after["loss_hex"]) != after["loss_hex"]:
        raise SystemExit(f"step {after['step']} was redone with another loss: {after}")
    return {"trial": "recovery", "rank": number % a.ranks, "killed_after_step": before[-1]["step"],
            "next_step": after["step"], "detected_s": at.get("failure_detected"),
            "respawned_s": at.get("spawned"), "next_step_done_s": after["t"] - killed,
            "that_step_took_s": after["step_time_s"],
            "steady_step_s": statistics.median(line["step_time_s"] for line in before)}


def cold_start_trial(a, folder, number):
    run = folder / f"cold_{number}"
    began = time.time()
    process = start(a, "train", run, 100000)
    try:
        first = wait_for("the first step", lambda: lines_of(run / "metrics.jsonl"), process)[0]
    finally:
        stop(process)
    return {"trial": "cold start", "first_step_begins_s": first["t"] - first["step_time_s"] - began,
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
        for trial in (cold_start_trial, recovery_trial):
            results = []
            for number in range(a.trials):
                results.append(trial(a, folder, number))
                print(json.dumps(results[-1], default=str), flush=True)
            for key in results[0]:
                values = [r[key] for r in results if r[key] is not None]
                if key.endswith("_s") and values:
                    medians[key] = statistics.median(values)
    print(json.dumps({"medians": {k: round(v, 4) for k, v in medians.items()},
                      "trials": a.trials, "ranks": a.ranks, "load": os.getloadavg()[0]}))


if __name__ == "__main__":
    sys.exit(main())
