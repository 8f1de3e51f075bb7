"""docs/PYTHON.md runs as it is written, and `import lockstep_trainer` trains: a run that is stopped
and resumed has the bits of one that was not."""
import os
import pathlib
import re
import sys

SOURCE = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(SOURCE / "tests/multirank"), str(SOURCE / "packaging/wheel")]
from lockstep_run import (BIN_DIR, RUN_TIMEOUT_S, TINY, Test, check, check_same,  # noqa: E402
                          curve, wait_until, whole_curve)
import lockstep_trainer  # noqa: E402

MANY_STEPS = 100_000  # it is stopped at one of the first
KEYS = TINY | {"lr_scheduler.total_steps": 100, "checkpoint.interval": 100}


def page(test):
    """Each block in its turn, as a notebook's cells, in an empty folder."""
    blocks = re.findall(r"^```python\n(.*?)^```$", (SOURCE / "docs/PYTHON.md").read_text(),
                        re.MULTILINE | re.DOTALL)
    check(len(blocks) == 2, "blocks of Python:", len(blocks))
    folder = test.folder / "notebook"
    folder.mkdir()
    os.chdir(folder)
    with test.case("the cells of docs/PYTHON.md run, and train"):
        names = {}
        for block in blocks:
            exec(compile(block, "docs/PYTHON.md", "exec"), names)
        check(names["run"].folder == folder / "results/training/run", names["run"])
        metrics = names["metrics"]
        check(metrics["step"].tolist() == list(range(1, 21)), metrics["step"])
        check(metrics["loss"][-1] < metrics["loss"][0], metrics["loss"])
        check(names["checkpoint"].step == 20, names["checkpoint"])
        state = names["run"].state()
        check((state["state"], state["checkpoint_step"]) == ("done", 20), state)
    return names


def calls_of_page(test, names):
    with test.case("each call that the page's table has is there"):
        rows = re.findall(r"^\| (`.*?) \|", (SOURCE / "docs/PYTHON.md").read_text(), re.MULTILINE)
        check(len(rows) > 10, rows)
        for row in rows:
            owner = lockstep_trainer
            for dotted, name in re.findall(r"`(\w*\.)?(\w+)", row):
                owner = names.get((dotted or "").rstrip("."), owner)
                check(hasattr(owner, name), row, "names", name, "which is not there")


def started(test, name, steps, **keys):
    (test.folder / "empty.toml").write_text("")
    process = lockstep_trainer.start(test.folder / "empty.toml", {
        **KEYS, "training.steps": steps, "data.path": test.tokens(),
        "job.dump_folder": test.folder / name, **keys})
    test.processes.append(process._process)  # which the test's end kills
    return process


def stopped_and_resumed(test):
    with test.case("a run that was stopped and started again has the bits of one that was not"):
        halted = started(test, "halted", MANY_STEPS)
        wait_until(lambda: len(halted.run.metrics()["step"]) > 0, "a step is logged")
        halted.stop()
        status = halted.wait(RUN_TIMEOUT_S, check=True)
        check(status == 75, status, halted.output())
        saved = halted.run.checkpoint().step
        check(max(curve(halted.run.folder)) == saved, "saved", saved)
        steps = saved + 3
        whole, resumed = started(test, "whole", steps), started(test, "halted", steps)
        for process in (whole, resumed):
            check(process.wait(RUN_TIMEOUT_S, check=True) == 0, process.output())
        check_same(whole_curve(whole.run.folder, steps), whole_curve(resumed.run.folder, steps),
                   "resumed")
        mine, other = whole.run.metrics(), resumed.run.metrics()
        check(mine["loss"].tobytes() == other["loss"].tobytes(), mine["loss"], other["loss"])
        check(set(other["generation"]) == {1, 2}, other["generation"])
    with test.case("the last checkpoints of both have the same tensors"):
        mine, other = (each.run.checkpoint(steps) for each in (whole, resumed))
        check(mine.names() == other.names() and len(mine.names()) > 5, mine.names())
        for name in mine.names():
            for kind in mine.kinds(name):
                check(mine.tensor(name, kind).tobytes() == other.tensor(name, kind).tobytes(),
                      kind, name)


def bf16(test):
    with test.case("bfloat16 moments are read as float32, and have their fingerprints"):
        process = started(test, "bf16", 2, **{"optimizer.state_dtype": "bfloat16"})
        process.wait(RUN_TIMEOUT_S, check=True)
        checkpoint = process.run.checkpoint()
        for name in checkpoint.names():
            words = checkpoint.tensor(name, "adam_v").reshape(-1).view("uint32")
            check(not (words & 0xFFFF).any(), name, "has bits that bfloat16 does not have")
            check(words.any(), name, "is zero")


with Test("python_page") as test:
    os.environ["PATH"] = f"{BIN_DIR}:{os.environ['PATH']}"
    for name in [name for name in os.environ if name.startswith("LOCKSTEP_")]:
        del os.environ[name]
    calls_of_page(test, page(test))
    stopped_and_resumed(test)
    bf16(test)
