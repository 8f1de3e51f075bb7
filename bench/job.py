"""Jobs of the benchmarks: `lockstep train` on synthetic tokens, and PyTorch's side."""
import json
import os
import pathlib
import random
import signal
import subprocess

HERE = pathlib.Path(__file__).resolve().parent
JOB_TIMEOUT_S = 900


def lines_of(path):
    """The whole lines of a file of JSON objects; none while it does not exist."""
    try:
        text = path.read_text()
    except FileNotFoundError:
        return []
    return [json.loads(line) for line in text[:text.rfind("\n") + 1].splitlines()]


def stop(process):
    if process.poll() is None:
        process.send_signal(signal.SIGTERM)
    try:
        process.wait(60)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def prepare_tokens(binaries, folder):
    source = random.Random(1)
    words = ["".join(source.choices("etaoinshrdlu", k=source.randint(2, 9))) for _ in range(2000)]
    text = "\n".join(" ".join(source.choices(words, k=12)) for _ in range(20000))
    (folder / "text.txt").write_text(text + "\n")
    subprocess.run([binaries / "lockstep", "prepare", folder / "text.txt", "--out",
                    folder / "tokens"], check=True, capture_output=True)


def train(binaries, folder, name, ranks, keys, checkpoints=False):
    """(lines of metrics.jsonl, metrics.json) of a run in `folder`/`name`."""
    keys = {"job.dump_folder": folder / name, "data.path": folder / "tokens", **keys}
    (folder / "empty.toml").write_text("")
    words = [str(word) for key, value in keys.items() for word in (f"--{key}", value)]
    words += [] if checkpoints else ["--checkpoint.no_enable"]
    done = subprocess.run([binaries / "lockstep", "train", folder / "empty.toml",
                           "--nproc-per-node", str(ranks), *words],
                          capture_output=True, text=True, timeout=JOB_TIMEOUT_S)
    if done.returncode != 0:
        raise SystemExit(f"lockstep train: {done.returncode}\n{done.stdout}\n{done.stderr}")
    lines = [json.loads(s) for s in (folder / name / "metrics.jsonl").read_text().splitlines()]
    return lines, json.loads((folder / name / "metrics.json").read_text())


def pytorch(python, ranks, flags, options, environment=None):
    """What fsdp2_step.py prints, run with `--flag value` of `flags` and the bare `options`."""
    launch = [python]
    if flags["strategy"] != "single":  # one rank has a process group as well
        launch += ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}"]
    words = [str(word) for key, value in flags.items() for word in (f"--{key}", value)]
    words += [f"--{option}" for option in options]
    done = subprocess.run([*launch, HERE / "fsdp2_step.py", *words],
                          env=dict(os.environ, **(environment or {})),
                          capture_output=True, text=True, timeout=JOB_TIMEOUT_S)
    found = [line for line in done.stdout.splitlines() if line.startswith("{")]
    if not found:
        raise SystemExit(f"fsdp2_step.py: {done.returncode}\n{done.stdout}\n{done.stderr}")
    return json.loads(found[-1])
