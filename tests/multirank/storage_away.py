"""Checkpoint storage that does not answer, as a file server that is down: calls hang. Training goes
on, nothing is lost, and saves work again when it is back. tests/support/storage.py serves the
files, so this test needs the right to mount. With the argument `all` it is away in each phase of a
save; STORAGE_AWAY_SECONDS: for so long at least."""
import json
import os
import re
import signal
import sys
import time

from launched import Launch
from lockstep_run import (EXIT_BUG, EXIT_RESUME, SOURCE_DIR, TINY, Page, Test, check, committed,
                          members, metrics, send, state_of, step_of, tail, wait_until, whole_curve)

KEYS = TINY | {"training.steps": 100_000, "checkpoint.interval": 2, "checkpoint.keep_latest_k": 2}
RESUMED = re.compile(r"resumed from memory \(.*\) at step (\d+): ")
AS_ROOT = [] if os.geteuid() == 0 else ["sudo", "-n"]

# The call of a save that is answered last; the next one hangs.
PHASES = {"begin": ("fsyncdir", "checkpoints"), "directory": ("mkdir", "step_"),
          "file": ("create", "rank_00000"), "chunks": ("write", "rank_00000"),
          "file synced": ("fsync", "rank_00000"), "votes": ("fsyncdir", "step_"),
          "manifest": ("create", "manifest.json"), "commit": ("rename", "manifest.json"),
          "LATEST": ("rename", "LATEST"), "index": ("create", "index.h5"),
          "prune": ("unlink", "manifest.json")}
FEW = ("chunks", "manifest", "prune")
AWAY_S = float(os.environ.get("STORAGE_AWAY_SECONDS", 0))
DEADLINE_S = 10  # of collectives, where one rank hangs


class Storage:
    """A folder whose calls hang between away_after() and back()."""

    def __init__(self, test, name):
        self.folder, self.control = test.folder / name, test.folder / f"{name}.control"
        self.log = test.folder / f"{name}.log"
        self.served = test.folder / f"{name}.served"
        for each in (self.served, self.folder):
            each.mkdir()
        self.server = test.start([*AS_ROOT, sys.executable, SOURCE_DIR / "tests/support/storage.py",
                                  self.served, self.folder, self.control], self.log)
        test.mounts.append(str(self.folder))
        wait_until(self.folder.is_mount, f"{name} is mounted")

    def tell(self, what):
        new = self.control.with_suffix(".new")
        new.write_text(json.dumps(what))
        new.rename(self.control)

    def away_after(self, op, name):
        self.tell({"op": op, "name": name})
        wait_until(lambda: state_of(self.server.pid) == "T", f"storage is away after {op} {name}")

    def back(self):
        self.server.send_signal(signal.SIGCONT)

    def away_for(self, name):
        """Writes to files of this name hang; wait_held: one does."""
        self.tell({"held": name})

    def wait_held(self, name):
        wait_until(lambda: name in self.log.read_text(), f"a write to {name}")

    def back_for_all(self):
        self.control.unlink()


def goes_on(pages, steps):
    """All ranks reach so many steps more."""
    aim = max(page.read()[0] for page in pages) + steps
    wait_until(lambda: all(page.read()[0] >= aim for page in pages), f"step {aim} without storage")


def all_files(test, phase):
    """The storage of all files of the run is away behind a call of a save."""
    name = f"away_{phase.replace(' ', '_')}"
    storage = Storage(test, name)
    launch = Launch(test, f"{name}/run", "2", KEYS)
    wait_until(lambda: len(committed(launch.folder)) > 1, "two checkpoints")
    pages = [Page(launch.page_of(rank)) for rank in range(2)]
    storage.away_after(*PHASES[phase])
    since, first = time.monotonic(), pages[0].read()[0]
    goes_on(pages, 60)
    wait_until(lambda: time.monotonic() >= since + AWAY_S, "storage stays away", AWAY_S + 60)
    storage.back()
    step = pages[0].read()[0]
    wait_until(lambda: pages[0].read()[3] >= step, "a save after that")
    print(f"       away for {step - first} steps", flush=True)
    launch.process.send_signal(signal.SIGTERM)
    launch.expect(EXIT_RESUME)
    check(len(launch.events("spawned")) == 1, "restarted", launch.events())
    test.command("checkpoint", "verify", launch.folder)
    whole_curve(launch.folder, step_of(committed(launch.folder)[0]))


def busy_saves_are_not_waited_for(test):
    """`checkpoint.when_busy = "wait"` waits for a save that goes on, not for one that hangs."""
    storage = Storage(test, "waits")
    run = test.ranks(test.folder / "waits_run", 2,
                     KEYS | {"checkpoint.folder": storage.folder / "checkpoints",
                             "checkpoint.when_busy": "wait", "checkpoint.vote_timeout_seconds": 2})
    wait_until(lambda: run.pages[0].read()[3] > 0, "a checkpoint")
    storage.away_after(*PHASES["chunks"])
    goes_on(run.pages, 60)
    storage.back()
    step = run.pages[0].read()[0]
    wait_until(lambda: run.pages[0].read()[3] >= step, "a save after that")
    run.kill()


def ends_by_its_policy(test):
    """Storage that never answers ends a run that allows no outage, with the reason."""
    storage = Storage(test, "policy")
    run = test.ranks(test.folder / "policy_run", 2,
                     KEYS | {"checkpoint.folder": storage.folder / "checkpoints",
                             "checkpoint.outage_minutes": 0, "checkpoint.vote_timeout_seconds": 1})
    wait_until(lambda: run.pages[0].read()[3] > 0, "a checkpoint")
    storage.away_after(*PHASES["chunks"])
    run.expect(EXIT_BUG)
    check("failed for longer than checkpoint.outage_minutes = 0" in run.log(), tail(run.log()))
    storage.back()


def disks_of_nodes_outlive_all_processes(test):
    """With checkpoint.memory_folder on a disk: what storage that is away lacks is there when every
    process was killed, and the run goes on from it."""
    storage, local = Storage(test, "shared"), test.folder / "disk_of_the_node"
    local.mkdir()
    keys = KEYS | {"checkpoint.folder": storage.folder / "checkpoints",
                   "checkpoint.memory_interval": 1, "checkpoint.memory_folder": local}
    folder = test.folder / "shared_run"
    run = test.ranks(folder, 2, keys)
    wait_until(lambda: run.pages[0].read()[3] > 0, "a checkpoint")
    storage.away_after(*PHASES["chunks"])
    goes_on(run.pages, 20)
    held, on_disk = run.pages[0].snapshot_step(), run.pages[0].read()[3]
    check(held > on_disk, f"held {held}, on the shared storage {on_disk}")
    run.kill()
    storage.back()
    run = test.ranks(folder, 3, keys | {"training.steps": held + 5,
                                        "lr_scheduler.total_steps": KEYS["training.steps"]})
    run.expect(0)
    said = RESUMED.search(run.log())
    check(said and int(said[1]) >= held, f"not resumed at {held} or later\n{tail(run.log(), 60)}")
    whole_curve(folder, held + 5)


def a_lost_worker_is_replaced_meanwhile(test):
    """The storage of all files of the run but its checkpoints is away when a worker dies: the next
    one starts at once, and what it says is in the logs when the storage is back."""
    storage = Storage(test, "replaced")
    launch = Launch(test, "replaced/run", "2",
                    KEYS | {"checkpoint.folder": test.folder / "replaced_saves/checkpoints"})
    wait_until(lambda: len(committed(test.folder / "replaced_saves")) > 1, "two checkpoints")
    page = launch.page_of(0)
    victim = members(launch.folder)["workers"][1]["pid"]
    storage.away_after("write", "metrics.jsonl")
    goes_on([Page(page)], 20)
    aim = Page(page).read()[0] + 20
    send(victim, signal.SIGKILL)
    wait_until(lambda: any(Page(each).read()[0] >= aim for each in page.parent.glob("page_[0-9]")),
               f"step {aim} of the next generation, without storage")
    storage.back()
    wait_until(lambda: len(launch.events("spawned")) == 2, "the events follow")
    launch.process.send_signal(signal.SIGTERM)
    launch.expect(EXIT_RESUME)
    check("the storage of this log does not answer; its lines go to" in launch.log(),
          tail(launch.log(), 60))
    log = (launch.folder / "logs/rank_00000.log").read_text()
    check(log.count("resumed from ") == 1 and "stopped on request" in log, tail(log))
    check(any(line["generation"] == 2 for line in metrics(launch.folder)), "no line followed")


def one_rank_hangs_while_all_stop(test, last_step):
    """The storage of one rank hangs for longer than a collective waits, while all wait for the last
    save: at the last step, or behind a stop with a save under way. The others, whose save has ended
    meanwhile, go on waiting for it."""
    name = f"one_rank_{'ends' if last_step else 'stops'}"
    storage, file = Storage(test, name), "rank_00001.h5"
    storage.away_for(file)
    launch = Launch(test, f"{name}_run", "2",
                    KEYS | {"checkpoint.folder": storage.folder / "checkpoints",
                            "training.steps": 6 if last_step else KEYS["training.steps"],
                            "checkpoint.interval": 6, "comm.train_timeout_seconds": DEADLINE_S,
                            "checkpoint.vote_timeout_seconds": 1})
    storage.wait_held(file)
    if not last_step:
        launch.process.send_signal(signal.SIGTERM)
    pages = [Page(launch.page_of(rank)) for rank in range(2)]
    wait_until(lambda: all(page.read()[1] == "save" for page in pages), "all wait")
    time.sleep(1.5 * DEADLINE_S)
    storage.back_for_all()
    launch.expect(0 if last_step else EXIT_RESUME)
    check(len(launch.events("spawned")) == 1, "restarted", launch.events())
    newest = committed(storage.folder)[0]
    test.command("checkpoint", "verify", storage.folder / "checkpoints" / newest)
    whole_curve(launch.folder, step_of(newest))


def damage_behind_the_last_commit_is_found(test):
    """A byte of rank 1's file changes on the disk between the last commit and the read-back."""
    storage = Storage(test, "damaged")
    storage.tell({"op": "rename", "name": "manifest.json"})
    run = test.ranks(test.folder / "damaged_run", 3,
                     KEYS | {"checkpoint.folder": storage.folder / "checkpoints",
                             "training.steps": 6, "checkpoint.interval": 6})
    wait_until(lambda: state_of(storage.server.pid) == "T", "storage is away behind the commit")
    [path] = storage.served.glob("checkpoints/step_*/rank_00001.h5")
    contents = bytearray(path.read_bytes())
    contents[len(contents) // 2] ^= 1
    path.write_bytes(contents)
    storage.back()
    statuses = run.wait()
    for rank in range(3):
        check(statuses[rank] == EXIT_BUG, f"exit {statuses}:\n{tail(run.log(rank))}")
        check("cannot be read back" in run.log(rank) and "rank 1: rank_00001.h5: " in run.log(rank),
              tail(run.log(rank)))


with Test("storage_away") as test:
    test.tokens()
    for phase in PHASES if sys.argv[1:] == ["all"] else FEW:
        with test.case(f"storage is away behind {phase}"):
            all_files(test, phase)
    for case in (a_lost_worker_is_replaced_meanwhile, busy_saves_are_not_waited_for,
                 ends_by_its_policy, disks_of_nodes_outlive_all_processes,
                 damage_behind_the_last_commit_is_found):
        with test.case(case.__name__.replace("_", " ")):
            case(test)
    for last_step in (False, True):
        with test.case(f"one rank hangs while all {'end' if last_step else 'stop'}"):
            one_rank_hangs_while_all_stop(test, last_step)
