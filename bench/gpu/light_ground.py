"""What the steps of tools/first_light share: where a step stands and what it has learned, programs
that it asks, and the devices of this machine. Standard library only."""
import json
import os
import pathlib
import subprocess
import tempfile

import job

ASK_S = 20
LINE_CHARACTERS = 300
# Dense bf16 peaks, in TFLOP/s, as the makers give them; the first name that is in the device's.
PEAK_TFLOPS = (("H100 PCIe", 756), ("H100 NVL", 835), ("H100", 989), ("H200", 989), ("GH200", 989),
               ("B200", 2250), ("A100", 312))


class NotRun(Exception):
    """Why a step has nothing to do here."""


class Ground:
    """Where a step stands: its arguments, and what it has learned."""

    def __init__(self, a, sizes):
        self.bin, self.device, self.python, self.out = a.bin, a.device, a.python, a.out
        self.sizes, self.failures = sizes, []
        self.work = pathlib.Path(tempfile.mkdtemp(prefix="light_"))

    def row(self, **columns):
        with open(self.out / "rows.jsonl", "a") as file:
            file.write(json.dumps(columns) + "\n")
        print(json.dumps(columns), flush=True)

    def failed(self, why):
        self.failures.append(why)
        print(f"FAILED {why}", flush=True)

    def program(self, name):
        path = self.bin / name
        if not os.access(path, os.X_OK):
            raise NotRun(f"there is no {path}")
        return path

    def attempt(self, what, body):
        """What goes wrong inside is said, and the step goes on."""
        try:
            return body()
        except (Exception, SystemExit) as error:
            if isinstance(error, NotRun):
                raise
            print(error, flush=True)
            self.failed(f"{what}: {in_short(str(error)) or type(error).__name__}")
            return None

    def ask(self, *words, limit_s=ASK_S, statuses=(0,)):
        """What a program printed, of which the log gets a copy."""
        done = subprocess.run([str(word) for word in words], capture_output=True, text=True,
                              errors="replace", timeout=limit_s, cwd=self.work)
        print(f"$ {' '.join(map(str, words))}: {done.returncode}\n{done.stderr}", flush=True)
        if done.returncode not in statuses:
            raise RuntimeError(f"{pathlib.Path(words[0]).name} ended with {done.returncode}: "
                               f"{last_line(done.stderr or done.stdout)}")
        return done.stdout

    def follow(self, *words, each=lambda line: None, **variables):
        """(what a program printed, its status); each line is in the log, and seen, at once."""
        process = subprocess.Popen([str(word) for word in words], stdout=subprocess.PIPE,
                                   stderr=subprocess.STDOUT, text=True, errors="replace",
                                   env=dict(os.environ, **variables), cwd=self.work)
        lines = []
        for line in process.stdout:
            print(line, end="", flush=True)
            lines.append(line)
            each(line.rstrip("\n"))
        return "".join(lines), process.wait()

    def check_device(self, named):
        """A build with CUDA that sees no GPU computes on the CPU and says so in one place."""
        names = [each["name"] for each in gpus()]
        if self.device == "cuda" and not any(name in named for name in names or ["NVIDIA"]):
            self.failed(f"it computed on {named}, not on {' or '.join(names) or 'a GPU'}")

    def tokens(self):
        if not (self.work / "tokens").exists():
            job.prepare_tokens(self.bin, self.work)
        return self.work / "tokens"


def in_short(text):
    """The first line and the last one, which says what went wrong; the log has them all."""
    lines = [line.strip()[:LINE_CHARACTERS] for line in text.splitlines() if line.strip()]
    return " … ".join(dict.fromkeys(lines[:1] + lines[-1:]))


def last_line(text):
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else "it said nothing"


def gpus():
    """[{name, driver, memory_mib, used_mib}] by nvidia-smi; none where it does not answer."""
    fields = "name,driver_version,memory.total,memory.used"
    try:
        said = subprocess.run(["nvidia-smi", f"--query-gpu={fields}",
                               "--format=csv,noheader,nounits"], capture_output=True, text=True,
                              timeout=ASK_S, check=True).stdout
        rows = [line.split(", ") for line in said.splitlines()]
        return [{"name": name, "driver": driver, "memory_mib": int(total), "used_mib": int(used)}
                for name, driver, total, used in rows]
    except (OSError, ValueError, subprocess.SubprocessError):
        return []


def peak_tflops(name):
    return next((peak for part, peak in PEAK_TFLOPS if part in name), None)
