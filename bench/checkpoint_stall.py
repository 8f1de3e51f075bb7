#!/usr/bin/env python3
"""What a save costs the training, and how fast it reaches the disk. Python's standard library only.

  checkpoint_stall.py --bin build/release/bin --config examples/demo.toml --data .cache/…_tokens

Trains with a save every --interval steps and reads what the run recorded: the seconds each save
held the training up (to begin it, and to wait for its staging before the next update), the longer
steps while it was written, and the bandwidth of the background work. The same number of bytes is
then written plainly to the same disk, 1 MiB a call, and synced: by one process, by as many as there
were ranks, and by as many while the same number of processes computes, as a save's writers find the
machine. Prints one JSON line.
"""
import argparse
import concurrent.futures
import contextlib
import json
import os
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile
import time

MIB = 1 << 20
SAVED = re.compile(r"saving the checkpoint of step (\d+) \((.*) -> (.*) on this rank; "
                   r"stall ([\d.]+) ms; write ([\d.]+) s, sync ([\d.]+) s\)")


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--bin", type=pathlib.Path, required=True, help="folder of lockstep")
    parser.add_argument("--config", type=pathlib.Path, required=True)
    parser.add_argument("--data", type=pathlib.Path, required=True, help="made by prepare")
    parser.add_argument("--dir", type=pathlib.Path, default=pathlib.Path("."),
                        help="a folder on the disk to measure")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--interval", type=int, default=8)
    parser.add_argument("--repeat", type=int, default=5, help="of the plain writes")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE",
                        help="one more key for Lockstep")
    return parser.parse_args()


def train(a, run):
    words = [a.bin / "lockstep", "train", a.config, "--data.path", a.data, "--job.dump_folder", run,
             "--nproc-per-node", a.ranks, "--training.steps", a.steps, "--validation.freq", 0,
             "--checkpoint.interval", a.interval, *(f"--{pair}" for pair in a.set)]
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(f"lockstep train: {done.returncode}\n{done.stdout}\n{done.stderr}")
    lines = [json.loads(s) for s in (run / "metrics.jsonl").read_text().splitlines()]
    log = (run / "logs" / "rank_00000.log").read_text()
    return lines, json.loads((run / "metrics.json").read_text())["checkpoint"], SAVED.findall(log)


def plain_write(path, size_bytes):
    block = memoryview(os.urandom(64 * MIB))
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
    began = time.perf_counter()
    for at in range(0, size_bytes, MIB):
        piece = block[at % len(block):at % len(block) + min(MIB, size_bytes - at)]
        if os.write(file, piece) != len(piece):
            raise SystemExit("short write")
    os.fsync(file)
    seconds = time.perf_counter() - began
    os.close(file)
    os.unlink(path)
    return seconds


def plain_writes(folder, size_bytes, writers, repeat):
    """Median seconds until the slowest of `writers` processes has synced its share."""
    seconds = []
    with concurrent.futures.ProcessPoolExecutor(writers) as pool:
        for _ in range(repeat):
            os.sync()
            jobs = [pool.submit(plain_write, folder / f"plain_{i}", size_bytes // writers)
                    for i in range(writers)]
            seconds.append(max(job.result() for job in jobs))
    return statistics.median(seconds)


@contextlib.contextmanager
def computing(count):
    busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    try:
        yield
    finally:
        for process in busy:
            process.kill()
            process.wait()


def step_times(lines, interval):
    """Median seconds of the steps right after a save began, and of the others; without the first,
    which warms up."""
    during = [x["step_time_s"] for x in lines[1:] if (x["step"] - 1) % interval == 0]
    others = [x["step_time_s"] for x in lines[1:] if (x["step"] - 1) % interval != 0]
    return statistics.median(during), statistics.median(others)


def main():
    a = arguments()
    a.bin, a.config, a.data = a.bin.resolve(), a.config.resolve(), a.data.resolve()
    with tempfile.TemporaryDirectory(dir=a.dir) as folder:
        folder = pathlib.Path(folder)
        lines, totals, saves = train(a, folder / "run")
        raw_bytes = int(totals["raw_bytes_per_rank"] / totals["committed"]) * a.ranks
        stored_bytes = int(totals["stored_bytes_per_rank"] / totals["committed"]) * a.ranks
        plain = {f"plain_write_{writers}_s": plain_writes(folder, raw_bytes, writers, a.repeat)
                 for writers in sorted({1, a.ranks})}
        with computing(a.ranks):
            plain["plain_write_busy_s"] = plain_writes(folder, raw_bytes, a.ranks, a.repeat)
    during, others = step_times(lines, a.interval)
    bandwidth = totals["bandwidth_MB_per_s_per_rank"] * a.ranks * 1e6
    stalls_ms = [float(save[3]) for save in saves]
    result = {
        "saves": totals["committed"], "skipped": totals["skipped"], "failed": totals["failed"],
        "ranks": a.ranks, "raw_MB": raw_bytes / 1e6, "stored_MB": stored_bytes / 1e6,
        "ratio": raw_bytes / stored_bytes,
        "stall_ms_median": statistics.median(stalls_ms), "stall_ms_max": max(stalls_ms),
        "step_s": others, "step_right_after_a_save_s": during,
        "background_write_s": statistics.median(float(save[4]) for save in saves),
        "background_sync_s": statistics.median(float(save[5]) for save in saves),
        "background_MB_per_s": bandwidth / 1e6,
        **plain,
        **{f"{key[:-2]}_MB_per_s": raw_bytes / s / 1e6 for key, s in plain.items()},
        "background_over_plain_busy": bandwidth * plain["plain_write_busy_s"] / raw_bytes,
        "load": os.getloadavg()[0]}
    print(json.dumps({k: round(v, 4) if isinstance(v, float) else v for k, v in result.items()}))


if __name__ == "__main__":
    sys.exit(main())
