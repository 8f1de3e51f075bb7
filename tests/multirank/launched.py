"""One `lockstep launch` on this machine, and what it says of itself."""
import pathlib
import signal
import subprocess

from lockstep_run import (check, events, flags, members, metrics, program, send, stopped_worker,
                          tail, wait_until)


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

    def stopped(self, rank, generation=1, timeout_s=60):
        """The pid of a worker that stops itself (debug.stop_at), once it has. It cannot end before
        it is woken or killed; the agent does the latter after 5 s."""
        def there():
            check(self.process.poll() is None, f"ended early\n{tail(self.log(), 60)}")
            return stopped_worker(self.folder, rank, generation)
        return wait_until(there, f"rank {rank} of generation {generation} stops itself",
                          timeout_s)["pid"]

    def ask_to_stop(self, worker):
        """SIGTERM to the agent, which knows of it before the stopped `worker` goes on."""
        self.process.send_signal(signal.SIGTERM)
        wait_until(lambda: self.events("stop_requested"), "the agent's word")
        send(worker, signal.SIGCONT)

    def expect(self, status, timeout_s=60):
        try:
            self.process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            check(False, f"still there after {timeout_s} s: {members(self.folder)}\n"
                         f"{tail(self.log(), 60)}")
        check(self.process.returncode == status,
              f"exit {self.process.returncode}, not {status}\n{tail(self.log(), 60)}")

    def events(self, name=None):
        return events(self.folder, name)

    def page_of(self, rank):
        return pathlib.Path(members(self.folder)["workers"][rank]["progress_page"])


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
    return wait_until(line, f"a step of generation {generation}")
