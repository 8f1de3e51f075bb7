"""Snapshots in memory: used first after a kill, on any world size, from a buddy where a node's
memory is lost, and never when damaged. Every curve is that of a run which had none of this.

Nodes are pretended: ranks that are given another checkpoint.memory_folder."""
import json
import pathlib
import re
import shutil
import signal

from launched import Launch
from lockstep_run import (TINY, Page, Test, check, check_same, metrics, send, tail, wait_until,
                          whole_curve)

STEPS, DISK_INTERVAL = 40, 10
KEYS = TINY | {"model.dim": 128, "model.ffn_dim": 352, "training.seq_len": 128,
               "training.steps": STEPS, "lr_scheduler.total_steps": STEPS,
               "checkpoint.interval": DISK_INTERVAL}
NO_SAVES = {"checkpoint.interval": 0}
MEMORY = {"checkpoint.memory_interval": 2}
BUDDY = MEMORY | {"checkpoint.buddy": "true"}
RESUMED = re.compile(r"resumed from memory \((.*)\) at step (\d+): .*the disk has step (-?\d+)")


class Run:
    """Generations of one run on pretended nodes."""

    def __init__(self, test, name, nodes, keys):
        self.test, self.nodes, self.keys = test, nodes, keys
        self.folder, self.memory = test.folder / name, test.folder / f"{name}_memory"
        for node in range(nodes):
            (self.memory / f"node_{node}").mkdir(parents=True)

    def start(self, world_size, keys=None, stop_at=None):
        def own_keys(rank):
            node = rank * self.nodes // world_size
            return {"checkpoint.memory_folder": self.memory / f"node_{node}"}
        self.lines = len(metrics(self.folder))
        return self.test.ranks(self.folder, world_size, KEYS | self.keys | (keys or {}), own_keys,
                               stop_at)

    def killed_after(self, step, world_size, keys=None):
        """A generation that saves nothing on the disk, and is killed when all its ranks hold a
        snapshot of `step` or later."""
        victim = self.test.random.randrange(world_size)
        run = self.start(world_size, NO_SAVES | (keys or {}), f"{victim}:snapshot:{step}")
        run.await_stop().kill()
        run.kill()
        return run

    def saved(self, world_size):
        """A generation that ends with a checkpoint of DISK_INTERVAL."""
        self.start(world_size, {"training.steps": DISK_INTERVAL}).expect(0)

    def slots(self, kind="*", node="*"):
        return sorted(self.memory.glob(f"node_{node}/lockstep-*/g*/rank_*.{kind}.*"))

    def finished(self, run, reference):
        run.expect(0)
        check("differ from here on" not in run.all_logs(), tail(run.all_logs(), 60))
        check_same(reference, whole_curve(self.folder, STEPS), str(self.folder))
        check(not self.slots(), f"cannot free snapshot memory: {self.slots()}")

    def resumed_from_memory(self, run):
        """What was said, the step, and the first step of the new generation."""
        wait_until(lambda: len(metrics(self.folder)) > self.lines or not run.running(), "a step")
        said = RESUMED.search(run.log())
        check(said, f"not resumed from memory\n{tail(run.all_logs(), 80)}")
        step, disk_step = int(said[2]), int(said[3])
        check(step % 2 == 0 and step > disk_step, said[0])
        first = metrics(self.folder)[self.lines]["step"]
        check(first == step + 1, f"first step {first} after {said[0]}")
        print(f"       {said[0]}", flush=True)
        return said[1], step


def folders_of(pid):
    """Those of snapshots in /dev/shm of which this process has files open."""
    links = (link.readlink() for link in pathlib.Path(f"/proc/{pid}/fd").iterdir())
    return {pathlib.Path(*link.parts[:4]) for link in links
            if str(link).startswith("/dev/shm/lockstep-")}


def launcher_respawns(test, reference):
    """As people run it: one machine, /dev/shm, another world size after the kill."""
    launch = Launch(test, "launched", "2,3",
                    KEYS | MEMORY | NO_SAVES | {"debug.stop_at": "1:1:snapshot:12"})
    folder, victim = launch.folder, launch.stopped(1)
    snapshot_step = Page(launch.page_of(1)).snapshot_step()
    memory = folders_of(victim)
    check(memory, "no snapshots in /dev/shm")
    send(victim, signal.SIGKILL)
    launch.expect(0)
    log = (folder / "logs" / "rank_00000.log").read_text(errors="replace")
    said = RESUMED.search(log)
    check(said and int(said[2]) >= snapshot_step >= 12, snapshot_step, tail(log, 60))
    print(f"       {said[0]}", flush=True)
    check_same(reference, whole_curve(folder, STEPS), "launched")
    left = [str(each) for each in memory if each.exists()]
    check(not left, f"cannot free snapshot memory: {left}")
    summary = json.loads((folder / "metrics.json").read_text())
    check(summary["redone_mismatches"] == 0, summary)
    snapshots = summary["memory_snapshots"]
    check(snapshots["complete"] > 0 and snapshots["failed"] == 0, snapshots)


def killed_twice_on_other_world_sizes(test, reference):
    for strategy in ("full_shard", "ddp"):
        run = Run(test, f"twice_{strategy}", 1, MEMORY | {"parallelism.strategy": strategy})
        run.killed_after(4, 2)
        _, first = run.resumed_from_memory(run.killed_after(14, 3))
        last = run.start(1)
        _, second = run.resumed_from_memory(last)
        check(first < second, f"{first}, then {second}")
        run.finished(last, reference)


def lost_node(test, reference):
    for lost, world_sizes, strategy in ((1, (4, 3), "full_shard"), (0, (2, 2), "ddp")):
        run = Run(test, f"lost_{lost}", 2, BUDDY | {"parallelism.strategy": strategy})
        run.killed_after(12, world_sizes[0])
        for folder in (run.memory / f"node_{lost}").iterdir():
            shutil.rmtree(folder)
        again = run.start(world_sizes[1])
        said, _ = run.resumed_from_memory(again)
        check("kept by a buddy" in said, said)
        run.finished(again, reference)


def lost_node_without_a_buddy(test, reference):
    run = Run(test, "no_buddy", 2, MEMORY)
    run.saved(2)
    mode = (run.folder / "checkpoints/memory_id").stat().st_mode & 0o777
    check(mode == 0o600, f"others can read where the memory is: {mode:o}")
    run.killed_after(14, 2)
    for folder in (run.memory / "node_1").iterdir():
        shutil.rmtree(folder)
    again = run.start(2)
    run.finished(again, reference)
    check("no copy of the part of rank 1 is left" in again.log(), tail(again.log(), 60))
    check(f"step_{DISK_INTERVAL:08d}" in again.log() and not RESUMED.search(again.log()),
          tail(again.log(), 60))


def damaged(test, reference):
    """A flipped bit in each snapshot's data, or header; and when the disk has nothing yet."""
    def flip(path, offset):
        raw = bytearray(path.read_bytes())
        raw[offset] ^= 1 << test.random.randrange(8)
        path.write_bytes(raw)
    for what, disk in (("data", True), ("header", True), ("data", False)):
        run = Run(test, f"damaged_{what}_{disk}", 1, MEMORY)
        if disk:
            run.saved(2)
        run.killed_after(14, 2)
        for path in run.slots("own"):
            flip(path, -5 if what == "data" else 60)
        again = run.start(2)
        run.finished(again, reference)
        said = again.log()
        named = "does not match" if what == "header" else "cannot use a snapshot in memory"
        check(named in said and not RESUMED.search(said), tail(said, 80))
        check(disk or metrics(run.folder)[run.lines]["step"] == 1, "the run did not start over")


with Test("memory") as test:
    with test.case("the run without snapshots"):
        reference = whole_curve(test.train("reference", 2, KEYS), STEPS)
    for case in (launcher_respawns, killed_twice_on_other_world_sizes, lost_node,
                 lost_node_without_a_buddy, damaged):
        with test.case(case.__name__.replace("_", " ")):
            case(test, reference)
