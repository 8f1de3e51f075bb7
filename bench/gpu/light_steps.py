"""The steps of tools/first_light: what each of them runs, and what it learns.

  light_steps.py STEP --bin BIN --device cuda --python PYTHON --out FOLDER

tools/first_light calls this, one process a step. What the step learns is at once a line of
FOLDER/rows.jsonl, so that a step that is killed has said what it knew. FOLDER/end.json is written
at the end: {"result": "ok" | "failed" | "not run", "why": [...]}. A process that leaves no end.json
crashed.
Standard library only.
"""
import argparse
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from typing import Callable, NamedTuple

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "bench" / "gpu"), str(ROOT / "bench")]
import device_times  # noqa: E402
import llama_bench  # noqa: E402
from light_ground import Ground, NotRun, gpus, last_line, peak_tflops  # noqa: E402

MIB = 1 << 20
PROGRAMS = ("lockstep", "lockstep-worker", "gpu_test")
ONE_TEST_S, SUITE_S = 40, 150
KERNEL_TESTS = "-GpuTraining.*:GpuNccl.*"  # all but these
# What a device has beside the tensors of a rank: a context, the code of the libraries.
CONTEXT_BYTES = 4 << 30
KERNEL_ROWS = 30
THREADS = min(16, os.cpu_count() or 1)
CHECKPOINTING = {"activation_checkpoint.mode": "full"}
OFFLOAD = {"training.enable_cpu_offload": "true", "training.threads": THREADS}
# What to try, in this order, until the plan says that it fits.
FITTING = (("nothing", {}), ("checkpointing", CHECKPOINTING),
           ("checkpointing, offload", CHECKPOINTING | OFFLOAD))
SIZES = {
    "cuda": {"model": "", "slot_tokens": 8192, "steps": 5,
             "warmup": 2, "small": "qwen-0.5b", "small_seq": 4096, "kills": 3, "restart": (),
             "bits": ("large",)},
    "cpu": {"model": "micro", "slot_tokens": 64, "steps": 2, "warmup": 1,
            "small": "micro", "small_seq": 32, "kills": 1,
            "restart": ("--dim", "64", "--layers", "2"), "bits": ()},
}


def torch_version():
    """Of the torch whose libraries tools/first_light has put on the path; "" if it has not."""
    folder = pathlib.Path(os.environ.get("LD_LIBRARY_PATH", "").split(":")[0])
    try:
        text = (folder.parent / "version.py").read_text()
    except OSError:
        return ""
    found = re.search(r"__version__ = '([^']*)'", text)
    return found[1] if found else ""


def programs(g):
    """Do the programs start here, and which libraries are missing?"""
    for name in PROGRAMS:
        path = g.bin / name
        if not path.exists():
            g.row(program=name, version="not there", missing="")
            if name != "gpu_test":
                g.failed(f"there is no {path}")
            continue
        missing = re.findall(r"(\S+) => not found", g.ask("ldd", path, statuses=(0, 1)))
        version = "" if name == "gpu_test" else g.attempt(
            name, lambda: g.ask(path, "--version").strip())
        g.row(program=name, version=version or "", missing=" ".join(missing))
        linked, there = re.search(r"LibTorch ([\d.]+)", version or ""), torch_version()
        if name == "lockstep-worker" and linked and not (there or linked[1]).startswith(linked[1]):
            g.failed(f"{name} was built with LibTorch {linked[1]}, and {there} is here")
        if missing:
            g.failed(f"{name} lacks {', '.join(missing)}; LOCKSTEP_TORCH or --python says where "
                     "torch is")


def doctor(g):
    """Is the node fit? GPUs, products, memory, disk."""
    found = json.loads(g.ask(g.program("lockstep"), "doctor", "--json", limit_s=300,
                             statuses=(0, 1)))
    for node in found["nodes"]:
        for verdict in node["verdicts"]:
            g.row(level=verdict["level"], what=verdict["what"], found=verdict["found"],
                  advice=verdict["advice"])
            if verdict["level"] == "bad":
                g.failed(f"{verdict['what']}: {verdict['found']}")
        if g.device == "cuda" and not node["facts"]["compute"]["cuda_devices"]:
            g.failed("LibTorch sees no GPU")


def outcomes(text):
    """{test: ok | failed | skipped | began} of what a googletest program printed."""
    words = {"RUN": "began", "OK": "ok", "FAILED": "failed", "SKIPPED": "skipped"}
    found = {}
    for word, name in re.findall(r"^\[ +(RUN|OK|FAILED|SKIPPED) +\] (\S+\.\S+?)(?:,|\s|$)", text,
                                 re.MULTILINE):
        if word == "RUN" or found.get(name) == "began":
            found[name] = words[word]
    return found


def run_tests(g, path, words, limit_s):
    """(outcomes, how it ended)"""
    process = subprocess.Popen([str(path), *words], stdout=subprocess.PIPE, text=True,
                               errors="replace", stderr=subprocess.STDOUT, cwd=g.work)
    ended = ""
    try:
        text, _ = process.communicate(timeout=limit_s)
    except subprocess.TimeoutExpired:
        process.kill()
        text, _ = process.communicate()
        ended = f"hung, killed after {limit_s} s"
    print(text, flush=True)
    if not ended and process.returncode < 0:
        ended = f"crashed with {signal.Signals(-process.returncode).name}"
    return outcomes(text), ended


def all_tests(listed):
    """Names of `--gtest_list_tests`."""
    suite, names = "", []
    for line in listed.splitlines():
        if line.startswith("  "):
            names.append(suite + line.split("#")[0].strip())
        elif line.split("#")[0].strip().endswith("."):
            suite = line.split("#")[0].strip()
    return names


def gpu_tests(g):
    """gpu_test in one process; what did not pass there, each in a process of its own."""
    path = g.program("gpu_test")
    names = all_tests(g.ask(path, "--gtest_list_tests", limit_s=60))
    began = time.monotonic()
    found, ended = run_tests(g, path, [], SUITE_S)
    passed = [name for name in names if found.get(name) in ("ok", "skipped")]
    g.row(test="all together", tests=len(names), passed=len(passed),
          seconds=round(time.monotonic() - began, 1), together="", alone="", how=ended or "ended")
    for name in names:
        if name in passed:
            continue
        alone, how = run_tests(g, path, [f"--gtest_filter={name}"], ONE_TEST_S)
        together, now = found.get(name, "not reached"), alone.get(name, "not reached")
        g.row(test=name, together=together, alone=now, how=how)
        if now != "ok" or together != "not reached":
            g.failed(f"{name}: {together} with the others, {now} alone{how and ', ' + how}")


def sanitizer(g, tool):
    usual = pathlib.Path(os.environ.get("CUDA_HOME", "/usr/local/cuda"))
    found = shutil.which("compute-sanitizer") or shutil.which(
        "compute-sanitizer", path=f"{usual}/bin:{usual}/compute-sanitizer")
    if not found:
        raise NotRun("there is no compute-sanitizer")
    said, _ = g.follow(found, "--tool", tool, "--kernel-name", "kns=lockstep", "--error-exitcode",
                       9, "--print-limit", 20, g.program("gpu_test"),
                       f"--gtest_filter={KERNEL_TESTS}")
    summary = re.search(r"SUMMARY: (?:.*?\()?(\d+) errors?", said)
    tests = outcomes(said)
    g.row(tool=tool, errors=int(summary[1]) if summary else "unknown",
          tests_ran=sum(each != "began" for each in tests.values()))
    if not summary or int(summary[1]):
        first = next((line for line in said.splitlines() if re.match(r"=+ (?!COMPUTE)", line)), "")
        g.failed(f"{tool}: {summary[0] if summary else 'no summary'}; {first.strip('= ')}")
    elif any(each not in ("ok", "skipped") for each in tests.values()) or not tests:
        g.failed(f"{tool}: no errors, but tests did not pass: {tests}")


def bits(g):
    """Ranks that share the device, offload, kill and resume: the bits of one rank."""
    g.program("lockstep-worker")

    def case(line):
        found = re.match(r"(ok|FAILED) +(.*?)(?: \(([\d.]+) s\))?$", line)
        if found and found[1] == "ok":
            g.row(case=found[2], same_bits="yes", seconds=float(found[3]))
        elif found and found[2] not in g.failures:  # it names them once more at its end
            g.row(case=found[2], same_bits="no", seconds="")
            g.failed(found[2])
    said, status = g.follow(sys.executable, ROOT / "tests/multirank/one_device.py",
                            *g.sizes["bits"], each=case, LOCKSTEP_BIN_DIR=str(g.bin))
    for device in sorted(set(re.findall(r", on (.*)$", said, re.MULTILINE))):
        g.check_device(device)
    if status != 0 and not g.failures:
        g.failed(f"one_device.py ended with {status}: {last_line(said)}")


def bench_arguments(g, model, seq, keys=None):
    """llama_bench.py's, of one shape; the micro model in place of each on a CPU."""
    name = next(iter(gpus()), {"name": ""})["name"]
    return llama_bench.arguments([
        "--bin", str(g.bin), "--python", g.python or "python3", "--device", g.device,
        "--model", g.sizes["model"] or model, "--seq", str(seq),
        "--batch", str(max(1, g.sizes["slot_tokens"] // seq)), "--accumulate", "2",
        "--steps", str(g.sizes["steps"]), "--warmup", str(g.sizes["warmup"]),
        "--peak-tflops", str(peak_tflops(name) or 989), *settings(keys or {})])


def settings(keys):
    return [word for key, value in keys.items() for word in ("--set", f"{key}={value}")]


def planned(g, keys, ranks, *words, limit_s=60):
    (g.work / "empty.toml").write_text("")
    flags = [f"--{key}={value}" for key, value in keys.items()]
    # Chunks are as large on each kind of GPU.
    device = ["--device", "h100", "--ranks-per-node", ranks] if g.device == "cuda" else []
    return json.loads(g.ask(g.program("lockstep"), "plan", g.work / "empty.toml", *flags,
                            "--world-size", ranks, *device, *words, "--json", limit_s=limit_s))


def bytes_of(plan, *parts):
    return sum(row["bytes"] for part in parts for row in plan[part])


def host_bytes():
    with open("/proc/meminfo") as file:
        return next(int(line.split()[1]) * 1024 for line in file if "MemAvailable" in line)


def fitting(g, model, seq):
    """(what it takes to fit, its arguments, bytes of tensors on the device), by `lockstep plan`."""
    devices = gpus()
    room = devices[0]["memory_mib"] * MIB - CONTEXT_BYTES if devices else None
    said = []
    for name, keys in FITTING:
        a = bench_arguments(g, model, seq, keys)
        # A run of the bench saves nothing, so that nothing is staged for it.
        plan = planned(g, llama_bench.lockstep_keys(a) | {"checkpoint.enable": "false"}, 1)
        tensor_bytes = plan["peak_bytes"] - plan["offloaded_bytes"]
        device_bytes = tensor_bytes + bytes_of(plan, "gpu")
        on_host = plan["offloaded_bytes"] + bytes_of(plan, "host")
        if g.device == "cpu" or room is None or (device_bytes <= room
                                                 and on_host <= 0.8 * host_bytes()):
            return name, a, tensor_bytes
        said.append(f"{device_bytes / 2**30:.0f} GiB, and {on_host / 2**30:.0f} of the host, "
                    f"with {name}")
    raise NotRun(f"{model} at {seq} tokens does not fit, says the plan: {'; '.join(said)}")


def phases(seconds):
    """The phases of a step that last, in ms, the longest first."""
    longest = sorted(seconds.items(), key=lambda item: -item[1])
    return ", ".join(f"{name} {1000 * s:.1f}" for name, s in longest if s >= 1e-4)


def mfu(run):
    """In percent; only where the device's peak is known."""
    devices = gpus()
    return round(run["mfu_pct"], 1) if devices and peak_tflops(devices[0]["name"]) else ""


def speed(g, model, seqs):
    """Tokens a second, MFU, phases and memory of one model, on made-up text."""
    g.tokens()
    too_large = []
    for seq in seqs if g.device == "cuda" else (g.sizes["small_seq"],):
        try:
            memory, a, plan_bytes = fitting(g, model, seq)
        except NotRun as reason:
            too_large.append(str(reason))
            continue
        run = g.attempt(f"{model} at {seq} tokens",
                        lambda: llama_bench.run_lockstep(a, g.work, f"run_{seq}"))
        if run is None:
            continue
        g.check_device(run["device"])
        g.row(model=a.model, seq=seq, batch=a.batch, slots=a.accumulate, memory=memory,
              tokens_per_s=round(run["tokens_per_s"]), mfu_pct=mfu(run),
              step_ms=round(1000 * run["step_s"], 1), device_mib=run["peak_device_mib"],
              planned_mib=round(plan_bytes / MIB), phases_ms=phases(run["phases_s"]))
    if too_large:
        raise NotRun("; ".join(too_large))


def kernels(g, model, seq):
    """Where the time of a step goes on the device: each kind of kernel, by CUPTI."""
    library = g.bin.parent / "lib/libdevice_trace.so"
    if g.device == "cpu" or not library.exists():
        raise NotRun("there is no GPU" if g.device == "cpu" else f"there is no {library}")
    g.tokens()
    _, a, _ = fitting(g, model, seq)
    a.steps, a.warmup = 2, 1
    os.environ |= {"CUDA_INJECTION64_PATH": str(library), "DEVICE_TRACE": str(g.work / "trace")}
    llama_bench.run_lockstep(a, g.work, "traced")
    trace = max(g.work.glob("trace.*"), key=lambda path: path.stat().st_size)
    step_ms, busy_ms, rows = device_times.of_step(trace)
    g.row(what="a step", ms=step_ms, percent="", launches=sum(row[2] for row in rows))
    g.row(what="the device computes or copies", ms=busy_ms,
          percent=round(100 * busy_ms / step_ms, 1), launches="")
    for name, ms, count in rows[:KERNEL_ROWS]:
        g.row(what=name, ms=ms, percent=round(100 * ms / step_ms, 1), launches=count)


def pytorch(g, model):
    """FSDP2 on one rank, eager and compiled, of the shape that `speed` has run."""
    if not g.python:
        raise NotRun("there is no Python with torch; --python names one")
    seq = g.sizes["small_seq"]
    memory, a, _ = fitting(g, model, seq)
    if "offload" in memory:
        raise NotRun(f"{model} fits with offload alone, which this side does not have")
    a.ac = memory == "checkpointing"
    for side in ("fsdp2", "fsdp2-compile"):
        run = g.attempt(side, lambda: llama_bench.run_pytorch(a, side))
        if run is not None:
            g.row(model=a.model, seq=seq, batch=a.batch, slots=a.accumulate, memory=memory,
                  side=side, tokens_per_s=round(run["tokens_per_s"]), mfu_pct=mfu(run),
                  step_ms=round(1000 * run["step_s"], 1), device_mib=run["peak_device_mib"])


class UsedMemory(threading.Thread):
    """The most that nvidia-smi shows in use while this runs, beyond what was used before."""

    def __init__(self):
        super().__init__(daemon=True)
        self.before = sum(each["used_mib"] for each in gpus())
        self.most, self.over = self.before, threading.Event()

    def run(self):
        while not self.over.wait(0.3):
            self.most = max(self.most, sum(each["used_mib"] for each in gpus()))

    def end(self):
        self.over.set()
        self.join()
        return self.most - self.before


def memory(g):
    """What `lockstep plan` predicts against what two steps take, and against the device's whole."""
    shapes = (("single", 1, {}), ("single, checkpointing", 1, CHECKPOINTING),
              ("full_shard", 2, {"parallelism.strategy": "full_shard"}),
              ("full_shard, offload", 2, {"parallelism.strategy": "full_shard",
                                          "training.enable_cpu_offload": "true"}))
    a = bench_arguments(g, g.sizes["small"], g.sizes["small_seq"])
    for name, ranks, keys in shapes:
        used = UsedMemory()
        used.start()
        plan = g.attempt(name, lambda: planned(g, llama_bench.lockstep_keys(a) | keys, ranks,
                                               "--probe", limit_s=130))
        device_mib = used.end()
        if plan is None:
            continue
        probe = plan["probe"]
        g.row(what=name, ranks=ranks, planned_mib=round(probe["predicted_bytes"] / MIB),
              measured_mib=round(probe["measured_bytes"] / MIB),
              deviation_pct=round(100 * probe["deviation"], 2), rss_mib=round(
                  probe["rss_bytes"] / MIB), whole_device_mib=device_mib)


def save(g):
    """How long a save stops the training, and how fast it reaches the disk."""
    a = bench_arguments(g, g.sizes["small"], g.sizes["small_seq"])
    (g.work / "empty.toml").write_text("")
    keys = llama_bench.lockstep_keys(a) | {"checkpoint.threads": THREADS}
    found = json.loads(last_line(g.ask(
        sys.executable, ROOT / "bench/checkpoint_stall.py", "--bin", g.bin, "--config",
        g.work / "empty.toml", "--data", g.tokens(), "--ranks", 1, "--dir", g.work, "--steps", 9,
        "--interval", 4, "--repeat", 1, *settings(keys), limit_s=600)))
    g.row(model=a.model, **{key: found[key] for key in (
        "saves", "failed", "raw_MB", "stored_MB", "stall_ms_median", "stall_ms_max", "step_s",
        "step_right_after_a_save_s", "background_MB_per_s", "plain_write_1_MB_per_s")})


def recovery(g):
    """Seconds from the kill of a worker to the next step, two ranks on the device."""
    def kill(line):
        found = json.loads(line) if line.startswith("{") else {}
        if "failed" in found:
            g.failed(found["failed"])
        elif "kill" in found:
            g.row(**{key: found.get(key, "") for key in (
                "kill", "rank", "detected_s", "workers_back_s", "next_step_s", "that_step_took_s",
                "in_flight_again_s")})
    said, status = g.follow(sys.executable, ROOT / "bench/restart_bench.py", "--bin", g.bin,
                            "--kills", g.sizes["kills"], *g.sizes["restart"], each=kill)
    if status != 0:
        g.failed(f"restart_bench.py ended with {status}: {last_line(said)}")


class Step(NamedTuple):
    name: str
    limit_s: int
    body: Callable


def of(body, *what):
    return lambda g: body(g, *what)


# What teaches most comes first: what breaks everything, then wrong bits, then a first figure, then
# the rest.
STEPS = (
    Step("programs", 60, programs),
    Step("doctor", 100, doctor),
    Step("gpu-tests", 280, gpu_tests),
    Step("bits", 220, bits),
    Step("speed-0.5b", 150, of(speed, "qwen-0.5b", (4096, 1024, 8192))),
    Step("kernels-0.5b", 90, of(kernels, "qwen-0.5b", 4096)),
    Step("memcheck", 150, of(sanitizer, "memcheck")),
    Step("racecheck", 150, of(sanitizer, "racecheck")),
    Step("synccheck", 120, of(sanitizer, "synccheck")),
    Step("memory", 150, memory),
    Step("save", 180, save),
    Step("recovery", 150, recovery),
    Step("speed-8b-8l", 180, of(speed, "8b-8l", (4096, 8192))),
    Step("kernels-8b-8l", 120, of(kernels, "8b-8l", 8192)),
    Step("speed-1.5b", 200, of(speed, "qwen-1.5b", (4096, 1024, 8192))),
    Step("speed-3b", 180, of(speed, "qwen-3b", (4096,))),
    Step("pytorch-0.5b", 120, of(pytorch, "qwen-0.5b")),
    Step("pytorch-8b-8l", 150, of(pytorch, "8b-8l")),
    Step("pytorch-1.5b", 120, of(pytorch, "qwen-1.5b")),
    Step("speed-7b", 280, of(speed, "qwen-7b", (4096,))),
    Step("pytorch-3b", 150, of(pytorch, "qwen-3b")),
    Step("speed-8b", 300, of(speed, "8b", (8192,))),
)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("step", choices=[step.name for step in STEPS])
    parser.add_argument("--bin", type=pathlib.Path, required=True)
    parser.add_argument("--device", choices=list(SIZES), required=True)
    parser.add_argument("--python", default="", help="one with torch; none: there is none")
    parser.add_argument("--out", type=pathlib.Path, required=True)
    a = parser.parse_args()
    g, name = Ground(a, SIZES[a.device]), a.step
    result, why = "ok", g.failures
    try:
        g.attempt(name, lambda: next(step.body for step in STEPS if step.name == name)(g))
    except NotRun as reason:
        result, why = "not run", [*g.failures, str(reason)]
    if g.failures:
        result = "failed"
    (g.out / "end.json").write_text(json.dumps({"result": result, "why": why}))
    return 0 if result != "failed" else 1


if __name__ == "__main__":
    sys.exit(main())
