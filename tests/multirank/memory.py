"""Snapshots in memory: used first after a kill, on any world size, from a buddy where a node's
memory is lost, and never when damaged. Every curve is that of a run which had none of this.

Nodes are pretended: ranks that are given another checkpoint.memory_folder."""
import json
import os
import pathlib
import re
import shutil
import signal

from lockstep_run import (TINY, Test, check, check_same, flags, metrics, program, tail, wait_until,
                          whole_curve)

STEPS, DISK_INTERVAL = 40, 10
KEYS = TINY | {"model.dim": 128, "model.ffn_dim": 352, "training.seq_len": 128,
               "training.steps": STEPS, "checkpoint.interval": DISK_INTERVAL}
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

    def start(self, world_size, keys=None):
        def own_keys(rank):
            node = rank * self.nodes // world_size
            return {"checkpoint.memory_folder": self.memory / f"node_{node}"}
        self.lines = len(metrics(self.folder))
        return self.test.ranks(self.folder, world_size, KEYS | self.keys | (keys or {}), own_keys)

    def killed_after(self, step, world_size, keys=None):
        """A generation that is killed when all its ranks hold a snapshot of `step` or later that
        the disk does not have yet."""
        run = self.start(world_size, keys)

        def there():
            check(run.running(), f"ended early\n{tail(run.all_logs(), 60)}")
            snapshot, committed = run.pages[0].snapshot_step(), run.pages[0].read()[3]
            return snapshot >= step and snapshot > committed
        wait_until(there, f"a snapshot of step {step}", pause_s=0.0005)
        victim = run.processes[self.test.random.randrange(world_size)]
        victim.kill()
        victim.wait()
        run.kill()
        return run

    def slots(self, kind="*", node="*"):
        return sorted(self.memory.glob(f"node_{node}/lockstep-*/g*/rank_*.{kind}.*"))

    def finished(self, run, reference):
        run.expect(0)
        check("differ from here on" not in run.all_logs(), tail(run.all_logs(), 60))
        check_same(reference, whole_curve(self.folder, STEPS), str(self.folder))
        check(not self.slots(), f"memory is not given back: {self.slots()}")

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


def launcher_respawns(test, reference):
    """As people run it: one machine, /dev/shm, another world size after the kill."""
    before = set(pathlib.Path("/dev/shm").glob("lockstep-*"))
    folder = test.folder / "launched"
    config = test.folder / "config.toml"
    config.write_text("# every key comes from the command line\n")
    words = flags(KEYS | MEMORY | {"data.path": test.tokens(), "job.dump_folder": folder})
    launch = test.start([program("lockstep"), "launch", config, *words, "--nproc-per-node", "2,3"],
                        test.folder / "launched.log")

    def worker():
        printed = test.command("status", folder, "--json", status=None)
        status = json.loads(printed) if printed.startswith("{") else {"workers": []}
        there = [each for each in status["workers"]
                 if each["alive"] and each["snapshot_step"] > max(11, each["committed_step"])]
        return there[-1] if there else None
    victim = wait_until(worker, "a snapshot of step 12")
    os.kill(victim["pid"], signal.SIGKILL)
    launch.wait(60)
    log = (folder / "logs" / "rank_00000.log").read_text(errors="replace")
    check(launch.returncode == 0, f"exit {launch.returncode}\n{tail(log, 60)}")
    said = RESUMED.search(log)
    check(said and int(said[2]) >= victim["snapshot_step"], tail(log, 60))
    print(f"       {said[0]}", flush=True)
    check_same(reference, whole_curve(folder, STEPS), "launched")
    left = set(pathlib.Path("/dev/shm").glob("lockstep-*")) - before
    check(not left, f"memory is not given back: {left}")
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
    run.killed_after(14, 2)
    for folder in (run.memory / "node_1").iterdir():
        shutil.rmtree(folder)
    again = run.start(2)
    run.finished(again, reference)
    check("no copy of rank 1's part is left" in again.log(), tail(again.log(), 60))
    check(f"step_{DISK_INTERVAL:08d}" in again.log() and not RESUMED.search(again.log()),
          tail(again.log(), 60))


def damaged(test, reference):
    """A flipped bit in each snapshot's data, or header; and when the disk has nothing yet."""
    def flip(path, offset):
        raw = bytearray(path.read_bytes())
        raw[offset] ^= 1 << test.random.randrange(8)
        path.write_bytes(raw)
    for what, disk in (("data", True), ("header", True), ("data", False)):
        run = Run(test, f"damaged_{what}_{disk}", 1,
                  MEMORY | ({} if disk else {"checkpoint.interval": 0}))
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
