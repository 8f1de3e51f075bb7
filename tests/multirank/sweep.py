"""`lockstep sweep` of 2 x 2 rows on two ranks: rows without enough memory are rows of the table; it
is stopped and killed in the middle of a row, and the same command goes on from there."""
import contextlib
import csv
import json
import resource
import signal

from lockstep_run import (EXIT_CONFIG, EXIT_NO_MEMORY, EXIT_RESUME, RUN_TIMEOUT_S, TINY, Test,
                          check, flags, metrics, program, send, state_of, wait_until)

MOST_BYTES = 16 << 30      # of a process: less than the weights of a rank, more than a small run
TOO_LARGE = 1 << 16        # its embedding is made, its first block is not
ROWS = [f"dim={dim},strategy={strategy}" for dim in (TOO_LARGE, 64)
        for strategy in ("ddp", "full_shard")]
HELD = ROWS[2]
# In the worker's place: while the file `hold` is there, a rank of the held row does not begin.
WORKER = """#!/bin/bash
while [[ -e {folder}/hold && "$*" == *{row}* ]]; do
  echo $$ >{folder}/waiting.tmp
  mv {folder}/waiting.tmp {folder}/waiting
  sleep 0.05
done
exec {worker} "$@"
"""


@contextlib.contextmanager
def memory_limit():
    before = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (MOST_BYTES, before[1]))  # what is started inherits it
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)


class Sweep:
    def __init__(self, test):
        self.test, self.out = test, test.folder / "out"
        (test.folder / "empty.toml").write_text("")
        worker = test.folder / "worker"
        worker.write_text(WORKER.format(folder=test.folder, row=HELD,
                                        worker=program("lockstep-worker")))
        worker.chmod(0o755)
        self.environment = test.environment | {"LOCKSTEP_WORKER": str(worker)}
        keys = {"data.path": test.tokens()} | TINY
        self.words = [program("lockstep"), "sweep", str(test.folder / "empty.toml"),
                      *flags({key: value for key, value in keys.items() if key != "model.dim"}),
                      "--over", f"model.dim={TOO_LARGE},64",
                      "--over", "parallelism.strategy=ddp,full_shard", "--nproc-per-node", "2",
                      "--out", str(self.out)]

    def start(self, name, *more):
        self.log = self.test.folder / f"{name}.log"
        with memory_limit():
            return self.test.start([*self.words, *more], self.log, self.environment)

    def ends(self, process, status):
        process.wait(RUN_TIMEOUT_S)
        check(process.returncode == status, process.returncode, self.log.read_text())
        return self.log.read_text()

    def interrupted(self, name, what):
        """Starts it, and sends it `what` while a worker of the held row waits."""
        (self.test.folder / "waiting").unlink(missing_ok=True)
        (self.test.folder / "hold").touch()
        process = self.start(name)
        wait_until(lambda: (self.test.folder / "waiting").exists() or process.poll() is not None,
                   "a worker of the held row", RUN_TIMEOUT_S)
        check(process.poll() is None, self.log.read_text())
        send(process.pid, what)
        process.wait(RUN_TIMEOUT_S)
        worker = int((self.test.folder / "waiting").read_text())
        wait_until(lambda: not state_of(worker), "the end of the row's workers", RUN_TIMEOUT_S)
        (self.test.folder / "hold").unlink()
        return process.returncode

    def statuses(self):
        files = [self.out / row / "exit_status" for row in ROWS]
        return [int(file.read_text()) if file.exists() else None for file in files]

    def when_written(self):
        return [(self.out / row / "exit_status").stat().st_mtime_ns for row in ROWS[:2]]


def stopped_and_killed(sweep):
    status = sweep.interrupted("stopped", signal.SIGINT)
    check(status == EXIT_RESUME, status, sweep.log.read_text())
    check("run the same command again to continue" in sweep.log.read_text(), sweep.log.read_text())
    check(sweep.statuses() == [EXIT_NO_MEMORY, EXIT_NO_MEMORY, None, None], sweep.statuses())
    before = sweep.when_written()
    status = sweep.interrupted("killed", signal.SIGKILL)
    check(status == -signal.SIGKILL, status)
    check(sweep.statuses()[2:] == [None, None], sweep.statuses())
    check(sweep.when_written() == before, "rows that were settled ran again")


def goes_on(sweep):
    before = sweep.when_written()
    printed = sweep.ends(sweep.start("goes_on"), 0)
    check(sweep.statuses() == [EXIT_NO_MEMORY, EXIT_NO_MEMORY, 0, 0], sweep.statuses(), printed)
    check(sweep.when_written() == before, "rows that were settled ran again")
    check(printed.count("out of memory\n") == 4, printed)  # as they go by, and in the table
    for row in ROWS[2:]:
        lines = metrics(sweep.out / row)
        check([line["step"] for line in lines] == list(range(1, 21)), row, lines)
        check({line["world_size"] for line in lines} == {2}, lines[0])
    losses = [[line["loss_hex"] for line in metrics(sweep.out / row)] for row in ROWS[2:]]
    check(losses[0] == losses[1], "the strategy changed a loss")


def reports(sweep):
    table = json.loads((sweep.out / "report.json").read_text())["rows"]
    check([row["name"] for row in table] == ROWS, table)
    for row in table[:2]:
        check(row["exit"] == "out of memory" and row["tokens_per_s"] is None, row)
    for row in table[2:]:
        check(row["exit"] == "done" and row["steps"] == 20, row)
        check(min(row["step_time_s"], row["tokens_per_s"], row["peak_memory_bytes"]) > 0, row)
        # Both have two ranks.
        check(row["scaling"] == row["tokens_per_s"] / table[2]["tokens_per_s"], row)
    lines = list(csv.DictReader((sweep.out / "report.csv").read_text().splitlines()))
    check([line["status"] for line in lines] == ["71", "71", "0", "0"], lines)
    check(lines[2]["model.dim"] == "64" and lines[2]["parallelism.strategy"] == "ddp", lines[2])
    for plot in ("tokens_per_s.svg", "peak_memory.svg"):
        check("strategy = full_shard" in (sweep.out / plot).read_text(), plot)
    again = sweep.ends(sweep.start("report", "--report", "--json"), 0)
    check(json.loads(again)["rows"] == table, again)
    refused = sweep.ends(sweep.start("another", "--steps", "3"), EXIT_CONFIG)
    check("belongs to another sweep: steps is 20" in refused, refused)


with Test("sweep") as test:
    subject = Sweep(test)
    with test.case("stopped, then killed, in the middle of a row"):
        stopped_and_killed(subject)
    with test.case("run the same command again to continue with what is not done"):
        goes_on(subject)
    with test.case("table, JSON, CSV, plots; another sweep is refused"):
        reports(subject)
