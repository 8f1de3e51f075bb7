"""One `lockstep launch` on this machine, and what it says of itself."""
import json
import pathlib
import subprocess

from lockstep_run import check, events, flags, metrics, program, tail, wait_until

RECOVERY_TIMEOUT_S = 40


class Launch:
    def __init__(self, test, name, nproc, keys):
        self.test, self.folder = test, test.folder / name
        self.log_path = test.folder / f"{name}.log"
        config = test.folder / "config.toml"
        config.write_text("# every key comes from the command line\n")
        words = flags({"data.path": test.tokens()} | keys)
        self.process = test.start([program("lockstep"), "launch", str(config), *words,
                                   f"--job.dump_folder={self.folder}",
                                   "--nproc-per-node", nproc], self.log_path)

    def log(self):
        return self.log_path.read_text(errors="replace")

    def status(self):
        printed = self.test.command("status", self.folder, "--json", status=None)
        return json.loads(printed) if printed.startswith("{") else {"workers": [], "generation": -1}

    def worker_at(self, rank, generation, step):
        """The pid of a worker once it computes `step` of that generation."""
        def there():
            check(self.process.poll() is None, f"ended early\n{tail(self.log(), 60)}")
            status = self.status()
            workers = {each["rank"]: each for each in status["workers"]}
            if status["generation"] != generation or rank not in workers:
                return None
            worker = workers[rank]
            return worker["pid"] if worker["alive"] and worker["step"] >= step else None
        return wait_until(there, f"rank {rank} at step {step} of generation {generation}")

    def expect(self, status, timeout_s=60):
        try:
            self.process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            check(False, f"still there after {timeout_s} s: {self.status()}\n"
                         f"{tail(self.log(), 60)}")
        check(self.process.returncode == status,
              f"exit {self.process.returncode}, not {status}\n{tail(self.log(), 60)}")

    def events(self, name=None):
        return events(self.folder, name)

    def page_of(self, rank):
        members = json.loads((self.folder / "workers.json").read_text())
        return pathlib.Path(members["workers"][rank]["progress_page"])


def next_step(launch, generation, moment):
    """Seconds from `moment` to the first line of metrics.jsonl that this launch's `generation`, or
    a later one, wrote."""
    start = launch.events("generation_start")[0]["generation"]

    def line():
        check(launch.process.poll() is None, tail(launch.log(), 60))
        last = launch.events("spawned")
        after = [each for each in metrics(launch.folder) if each["t"] > moment]
        enough = last and last[-1]["generation"] - start + 1 >= generation
        after = [each for each in after if enough and each["t"] > last[-1]["t"]]
        return after[0]["t"] - moment if after else None
    return wait_until(line, f"a step of generation {generation}", RECOVERY_TIMEOUT_S)
