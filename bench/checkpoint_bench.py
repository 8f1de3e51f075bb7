#!/usr/bin/env python3
"""Saves and loads of a real state beside plain I/O of the same bytes and beside PyTorch's DCP.

  checkpoint_bench.py --bin build/release/bin --state RUN/checkpoints/step_… --dir DIR
                      [--python PY_WITH_TORCH] [--ranks 2] [--repeat 3]

Every rank is a process of save_bench (or of dcp_side.py). "busy": each rank has a thread that
computes all the time, so that every core is full; "idle": it has none. Seconds are the slowest
rank's; a cell is the median of --repeat runs, which stand behind it. Prints one JSON line at the
end. Cold: the page cache of the files was dropped before each load (posix_fadvise); both programs
and the plain reads find nothing there. The disk is that of --dir.
"""
import argparse
import json
import mmap
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import threading
import time

MIB = 1 << 20


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--bin", type=pathlib.Path, required=True, help="folder of save_bench")
    parser.add_argument("--state", type=pathlib.Path, required=True, help="a checkpoint")
    parser.add_argument("--dir", type=pathlib.Path, required=True, help="on the disk to measure")
    parser.add_argument("--python", help="with torch: measures DCP as well")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--codecs", default="zstd,none")
    parser.add_argument("--threads", type=int, default=1, help="compressors of a rank")
    parser.add_argument("--nice", type=int, default=0, help="of the compressors")
    return parser.parse_args()


def raw_write(path, size):
    block = mmap.mmap(-1, 64 * MIB)  # aligned; incompressible
    block.write(os.urandom(64 * MIB))
    view = memoryview(block)
    start = time.perf_counter()
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_DIRECT, 0o644)
    for offset in range(0, size // MIB * MIB, MIB):
        at = offset % (64 * MIB)
        if os.write(fd, view[at:at + MIB]) != MIB:
            raise SystemExit("a short write")
    os.fsync(fd)
    os.close(fd)
    return time.perf_counter() - start


def raw_read(path):
    block = mmap.mmap(-1, MIB)
    start = time.perf_counter()
    fd = os.open(path, os.O_RDONLY | os.O_DIRECT)
    while os.readv(fd, [block]) == MIB:
        pass
    os.close(fd)
    return time.perf_counter() - start


def settle():
    os.sync()
    time.sleep(0.2)


def plain(a, raw_bytes, stored_bytes):
    path, out = a.dir / "raw", {"write_s": [], "write_all_s": [], "read_stored_s": []}
    for _ in range(a.repeat):
        settle()
        out["write_s"].append(raw_write(path, raw_bytes))
        settle()
        part = raw_bytes // a.ranks
        threads = [threading.Thread(target=raw_write, args=(a.dir / f"raw{r}", part))
                   for r in range(a.ranks)]
        start = time.perf_counter()
        [t.start() for t in threads]
        [t.join() for t in threads]
        out["write_all_s"].append(time.perf_counter() - start)
        os.truncate(path, stored_bytes // MIB * MIB)
        settle()
        out["read_stored_s"].append(raw_read(path))
    for each in a.dir.glob("raw*"):
        each.unlink()
    return out


def ranks(a, mode, *keys):
    shutil.rmtree(a.dir / "ours" / ".sync", ignore_errors=True)
    (a.dir / "ours").mkdir(parents=True, exist_ok=True)
    count = 1 if mode == "verify" else a.ranks
    started = [subprocess.Popen([a.bin / "save_bench", a.state, a.dir / "ours", str(r),
                                 str(count), mode, f"repeat={a.repeat}", *keys],
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
               for r in range(count)]
    results = []
    for process in started:
        printed, said = process.communicate()
        if process.returncode != 0:
            raise SystemExit(f"save_bench {mode}: {process.returncode}\n{said}")
        results.append(json.loads(printed))
    return [merge(runs) for runs in zip(*results)]


def merge(runs):
    """One run of all ranks: sums of bytes and CPU seconds, the slowest of what is seconds."""
    return {key: (sum if "bytes" in key or key == "cpu_s" else
                  min if key == "compute_rate_during" else max)(run[key] for run in runs)
            for key in runs[0]}


def median(runs, key):
    return statistics.median(run[key] for run in runs)


def ours(a):
    out = {}
    for codec in a.codecs.split(","):
        keys = (f"codec={codec}", f"threads={a.threads}", f"nice={a.nice}")
        for load in ("busy", "idle"):
            shutil.rmtree(a.dir / "ours", ignore_errors=True)
            settle()
            out[f"save_{codec}_{load}"] = ranks(a, "save", f"load={int(load == 'busy')}", *keys)
        settle()
        out[f"load_{codec}"] = ranks(a, "load")
        out[f"verify_{codec}"] = ranks(a, "verify")
    shutil.rmtree(a.dir / "ours", ignore_errors=True)
    return out


def dcp(a):
    done = subprocess.run(
        [a.python, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(a.ranks),
         pathlib.Path(__file__).parent / "dcp_side.py", "--manifest", a.state / "manifest.json",
         "--dir", a.dir, "--repeat", str(a.repeat)], capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(f"dcp_side.py: {done.returncode}\n{done.stderr[-2000:]}")
    return json.loads(done.stdout.splitlines()[-1])


def row(*cells):
    print("| " + " | ".join(cells) + " |")


def report(a, out):
    write, read = (statistics.median(out["plain"][k]) for k in ("write_s", "read_stored_s"))
    write_all = statistics.median(out["plain"]["write_all_s"])
    row("plain direct I/O", f"write {write:.2f} s, {a.ranks} writers {write_all:.2f} s",
        f"read of the stored {read:.2f} s")
    for name, runs in out["ours"].items():
        if name.startswith("save"):
            first = runs[0]
            row(name, f"stall {1e3 * max(r['stall_s'] for r in runs):.1f} ms",
                f"frozen {median(runs, 'frozen_s'):.3f} s",
                f"durable {median(runs, 'durable_s'):.2f} s",
                f"{median(runs, 'durable_s') / write:.2f} x direct write",
                f"compute lost {median(runs, 'compute_lost_s'):.2f} s" if "compute_lost_s" in first
                else f"CPU {median(runs, 'cpu_s'):.2f} s",
                f"stored {first['stored_bytes'] / first['raw_bytes']:.3f}")
        else:
            seconds = median(runs, "load_s" if name.startswith("load") else "verify_s")
            row(name, f"{seconds:.3f} s", f"{seconds / read:.2f} x direct read")
    if "dcp" not in out:
        return
    d = out["dcp"]
    row("DCP synchronous", f"{statistics.median(d['save_s']):.2f} s")
    for name in ("thread", "thread_async_staging"):
        row(f"DCP {name}", f"stall {1e3 * median(d[name], 'stall_s'):.0f} ms",
            f"frozen {median(d[name], 'frozen_s'):.3f} s",
            f"durable {median(d[name], 'durable_s'):.2f} s",
            f"{median(d[name], 'durable_s') / write:.2f} x direct write",
            f"compute lost {median(d[name], 'compute_lost_s'):.2f} s")
    row("DCP load, cold", f"{statistics.median(d['load_cold_s']):.3f} s")


def main():
    a = arguments()
    a.dir.mkdir(parents=True, exist_ok=True)
    manifest = json.loads((a.state / "manifest.json").read_text())
    elements = sum(len(t["fingerprint"]) * product(t["global_shape"]) for t in manifest["tensors"])
    stored = sum(f["size_bytes"] for f in manifest["files"])
    out = {"state_bytes": 4 * elements, "ranks": a.ranks, "threads": a.threads, "nice": a.nice,
           "plain": plain(a, 4 * elements, stored), "ours": ours(a)}
    if a.python:
        out["dcp"] = dcp(a)
    report(a, out)
    print(json.dumps(out))
    return 0


def product(shape):
    total = 1
    for size in shape:
        total *= size
    return total


if __name__ == "__main__":
    sys.exit(main())
