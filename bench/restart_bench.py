#!/usr/bin/env python3
"""What a SIGKILL of a worker costs: `lockstep launch` and torchrun with FSDP2 and DCP, in turn.

  restart_bench.py --bin build/release/bin --python PY --kills 50 --torchrun-kills 5

A model of 26 M parameters (or of --dim and --layers) on --ranks ranks, a checkpoint every 5 steps.
In one run, ranks are killed in turn, each time after a new checkpoint and a step more. Seconds
after the kill: until the launcher noticed, until all workers are back, until the next completed
step, until the step that was in flight is complete again. Lockstep also keeps a snapshot in memory
after every step. torchrun is run with TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1 and without (its
default). Prints one JSON line a kill and one of medians; `back` counts the kills after which
training went on; a step is what lies between two of the run in the middle, and `over_a_step_s` the
next completed step less that. Lockstep's phases are those that it logs itself. --plain also kills,
a moment before, the process that Lockstep keeps ready: another one has to be started then.
"""
import argparse
import json
import os
import pathlib
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time

import job

SHAPE = {"dim": 512, "layers": 6, "heads": 8, "kv-heads": 4, "ffn": 1408, "seq": 128, "vocab": 8192}
EVERY = 5
LIMIT_S = 60
PAUSE_S = 0.002


class Failed(Exception):
    pass


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--bin", type=pathlib.Path, required=True, help="folder of lockstep")
    parser.add_argument("--python", default="", help="one with torch; none: Lockstep alone")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--torchrun-kills", type=int, default=5)
    parser.add_argument("--plain", action="store_true", help="nothing is kept ready")
    for name in ("dim", "layers"):
        parser.add_argument(f"--{name}", type=int, default=SHAPE[name])
    a = parser.parse_args()
    SHAPE.update(dim=a.dim, layers=a.layers)
    return a


def wait_for(process, look, limit_s=LIMIT_S):
    deadline = time.time() + limit_s
    while True:
        found = look()
        if found:
            return found
        if process.poll() is not None:
            raise Failed(f"it ended with {process.returncode}")
        if time.time() > deadline:
            raise Failed(f"no answer for {limit_s} s")
        time.sleep(PAUSE_S)


class Lockstep:
    def __init__(self, a, folder):
        self.run = run = folder / "run"
        self.plain = a.plain
        job.prepare_tokens(a.bin, folder)
        (folder / "empty.toml").write_text("")
        keys = {"job.dump_folder": run, "data.path": folder / "tokens", "model.dim": SHAPE["dim"],
                "model.n_layers": SHAPE["layers"], "model.n_heads": SHAPE["heads"],
                "model.n_kv_heads": SHAPE["kv-heads"], "model.ffn_dim": SHAPE["ffn"],
                "model.vocab_size": SHAPE["vocab"], "training.seq_len": SHAPE["seq"],
                "training.local_batch_size": 2, "training.slots": a.ranks,
                "training.threads": 1, "training.steps": 1000000, "validation.freq": 0,
                "checkpoint.interval": EVERY, "checkpoint.memory_interval": 1,
                "checkpoint.keep_latest_k": 2}
        words = [str(word) for key, value in keys.items() for word in (f"--{key}", value)]
        self.log = open(folder / "log", "w")
        self.process = subprocess.Popen(
            [a.bin / "lockstep", "launch", folder / "empty.toml", "--nproc-per-node",
             str(a.ranks), *words], stdout=self.log, stderr=self.log)

    def about_to_kill(self):
        if not self.plain:
            return
        task = pathlib.Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children")
        ready = set(map(int, task.read_text().split())) - set(self.workers())
        for pid in ready:
            os.kill(pid, signal.SIGKILL)
        wait_for(self.process, lambda: not ready & set(map(int, task.read_text().split())))

    def workers(self):
        members = json.loads((self.run / "workers.json").read_text())
        return [each["pid"] for each in members["workers"]]

    def steps(self):
        return job.lines_of(self.run / "metrics.jsonl")

    def ready(self, since):
        """A checkpoint and a step that are newer than `since`: the steps."""
        done = [each for each in self.steps() if each["t"] > since]
        saved = [path for path in (self.run / "checkpoints").glob("*/manifest.json")
                 if path.stat().st_mtime > since]
        return done if len(done) > 1 and saved else None

    def after(self, moment, in_flight):
        events = [each for each in job.lines_of(self.run / "events.jsonl")
                  if each["t"] > moment - 0.01]
        back = [each for each in events if each["event"] == "spawned"]
        steps = [each for each in self.steps() if back and each["t"] > back[0]["t"]]
        if not any(each["step"] >= in_flight for each in steps):
            return None
        first = {each["event"]: each["t"] - moment for each in reversed(events)}
        recovered = [each["reason"] for each in events if each["event"] == "recovered"]
        if not recovered:
            return None
        phases = re.findall(r"([a-z ]+) (\d+) ms[,:]", recovered[0])
        redone = next(each for each in steps if each["step"] >= in_flight)
        losses = {}
        for each in self.steps():
            if losses.setdefault(each["step"], each["loss_hex"]) != each["loss_hex"]:
                raise SystemExit(f"step {each['step']} was redone with a different loss")
        return {"detected_s": first["failure_detected"], "workers_back_s": first["spawned"],
                "next_step_s": steps[0]["t"] - moment, "that_step_took_s": steps[0]["step_time_s"],
                "in_flight_again_s": redone["t"] - moment,
                **{name.strip().replace(" ", "_") + "_s": int(ms) / 1000 for name, ms in phases}}


class Torchrun:
    def __init__(self, a, folder, own_store):
        self.folder, self.ranks, self.restart = folder, a.ranks, 0
        environment = dict(os.environ, OMP_NUM_THREADS="1", RESTART_FOLDER=str(folder))
        if own_store:
            environment["TORCH_DISABLE_SHARE_RDZV_TCP_STORE"] = "1"
        words = [str(word) for key, value in SHAPE.items() for word in (f"--{key}", value)]
        self.log = open(folder / "log", "w")
        self.process = subprocess.Popen(
            [a.python, "-m", "torch.distributed.run", f"--nproc-per-node={a.ranks}",
             "--max-restarts=100", "--rdzv-backend=c10d", "--rdzv-endpoint=localhost:0",
             job.HERE / "torchrun_side.py", "--strategy", "fsdp2", "--batch", "2", *words],
            stdout=self.log, stderr=self.log, env=environment, start_new_session=True)

    def events(self):
        return [job.lines_of(self.folder / f"events_{rank}.jsonl") for rank in range(self.ranks)]

    def workers(self):
        return [each[-1]["pid"] for each in self.events()]

    def steps(self):
        return [each for each in self.events()[-1] if each["event"] == "step"]

    def ready(self, since):
        done = [each for each in self.steps() if each["t"] > since]
        latest = self.folder / "latest"
        saved = latest.exists() and latest.stat().st_mtime > since
        return done if len(done) > 1 and saved else None

    def after(self, moment, in_flight):
        later = [[each for each in events if each["t"] > moment and each["restart"] > self.restart]
                 for events in self.events()]
        steps = [[each for each in events if each["event"] == "step"] for events in later]
        if not all(any(each["step"] >= in_flight for each in events) for events in steps):
            return None
        loaded = [next(each["t"] for each in events if each["event"] == "loaded")
                  for events in later]
        again = [next(each["t"] for each in events if each["step"] >= in_flight)
                 for events in steps]
        return {"workers_back_s": max(loaded) - moment,
                "next_step_s": max(events[0]["t"] for events in steps) - moment,
                "in_flight_again_s": max(again) - moment}

    def about_to_kill(self):
        self.restart = self.events()[0][-1]["restart"]


def kills(name, run, count, ranks):
    results, since, healthy_restarts = [], 0.0, 0
    try:
        for number in range(count):
            wait_for(run.process, lambda: run.ready(since))
            run.about_to_kill()
            pids, victim = run.workers(), number % ranks
            in_flight = run.steps()[-1]["step"] + 1
            moment = time.time()
            os.kill(pids[victim], signal.SIGKILL)
            found = wait_for(run.process, lambda: run.after(moment, in_flight))
            now = run.workers()
            healthy_restarts += sum(now[rank] != pids[rank] for rank in range(ranks)
                                    if rank != victim)
            results.append(found)
            print(json.dumps({"who": name, "kill": number, "rank": victim} |
                             {key: round(value, 3) for key, value in found.items()}), flush=True)
            since = time.time()
    except Failed as error:
        print(json.dumps({"who": name, "failed": str(error)}), flush=True)
    finally:
        job.stop(run.process)
    times = [each["t"] for each in run.steps()]
    step = statistics.median(after - before for before, after in zip(times, times[1:]))
    for each in results:
        each["over_a_step_s"] = each["next_step_s"] - step
    medians = {key: round(statistics.median(each[key] for each in results), 3)
               for key in (results[0] if results else {})}
    worst = {key: round(max(each[key] for each in results), 3)
             for key in (results[0] if results else {})}
    return {"who": name, "back": f"{len(results)} of {count}", "step_s": round(step, 3),
            "median": medians, "worst": worst,
            "healthy_processes_restarted": healthy_restarts}


def main():
    a = arguments()
    a.bin = a.bin.resolve()
    summary = []
    with tempfile.TemporaryDirectory() as place:
        for name, make, count in (
                ("lockstep", lambda f: Lockstep(a, f), a.kills),
                ("torchrun, own store", lambda f: Torchrun(a, f, True), a.torchrun_kills),
                ("torchrun", lambda f: Torchrun(a, f, False), a.torchrun_kills)):
            if name != "lockstep" and not a.python:
                continue
            folder = pathlib.Path(place) / name.replace(", ", "_").replace(" ", "_")
            folder.mkdir()
            summary.append(kills(name, make(folder), count, a.ranks))
    for each in summary:
        print(json.dumps(each))


if __name__ == "__main__":
    sys.exit(main())
