"""A job of Lockstep for the benchmarks: synthetic tokens, one `lockstep train`, its metrics."""
import json
import random
import subprocess

JOB_TIMEOUT_S = 900


def prepare_tokens(binaries, folder):
    source = random.Random(1)
    words = ["".join(source.choices("etaoinshrdlu", k=source.randint(2, 9))) for _ in range(2000)]
    text = "\n".join(" ".join(source.choices(words, k=12)) for _ in range(20000))
    (folder / "text.txt").write_text(text + "\n")
    subprocess.run([binaries / "lockstep", "prepare", folder / "text.txt", "--out",
                    folder / "tokens"], check=True, capture_output=True)


def train(binaries, folder, name, ranks, keys):
    """(lines of metrics.jsonl, metrics.json) of a run without checkpoints."""
    keys = {"job.dump_folder": folder / name, "data.path": folder / "tokens", **keys}
    (folder / "empty.toml").write_text("")
    flags = [str(word) for key, value in keys.items() for word in (f"--{key}", value)]
    done = subprocess.run([binaries / "lockstep", "train", folder / "empty.toml",
                           "--nproc-per-node", str(ranks), "--checkpoint.no_enable", *flags],
                          capture_output=True, text=True, timeout=JOB_TIMEOUT_S)
    if done.returncode != 0:
        raise SystemExit(f"lockstep train: {done.returncode}\n{done.stdout}\n{done.stderr}")
    lines = [json.loads(s) for s in (folder / name / "metrics.jsonl").read_text().splitlines()]
    return lines, json.loads((folder / name / "metrics.json").read_text())
