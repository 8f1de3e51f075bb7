"""`lockstep track`: a run that is killed twice is one run in the stores of W&B and MLflow, each
step once with the values of metrics.jsonl, though the exporters are killed in between.

  track_test.py   (programs from LOCKSTEP_BIN_DIR; this Python has both clients)
"""
import json
import math
import os
import pathlib
import shutil
import signal
import struct
import sys
import zlib

import mlflow
from wandb.proto import wandb_internal_pb2

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1] / "multirank"))
from launched import Launch  # noqa: E402
from lockstep_run import (TINY, Test, check, metrics, program, send, tail,  # noqa: E402
                          wait_until)

STEPS = 40
KEYS = TINY | {"training.steps": STEPS, "checkpoint.interval": 3, "validation.freq": 10,
               "validation.slots": 2}
START_TIMEOUT_S = 200  # a client's import, and MLflow's tables, take seconds on an idle machine
os.environ["GIT_PYTHON_REFRESH"] = "quiet"


class Exporter:
    def __init__(self, test, folder, tracker, *words):
        self.log = test.folder / f"track_{tracker}.log"
        self.process = test.start([program("lockstep"), "track", str(folder), "--to", tracker,
                                   "--project", "lockstep-test", *words], self.log)

    def kill(self):
        check(self.process.poll() is None, f"it had ended:\n{tail(self.log.read_text())}")
        send(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def expect_end(self, status=0):
        self.process.wait(START_TIMEOUT_S)
        check(self.process.returncode == status, tail(self.log.read_text(), 60))
        return self.log.read_text()


# ---- W&B's files, read without lockstep ---------------------------------------------------------
def wandb_records(path):
    """LevelDB's log format behind W&B's header of 7 bytes; the last record may be cut off."""
    raw, at, parts = path.read_bytes(), 7, []
    check(raw[:4] == b":W&B", path, raw[:7])
    while at + 7 <= len(raw):
        room = 32768 - at % 32768
        if room < 7:
            at += room
            continue
        crc, length, kind = struct.unpack_from("<IHB", raw, at)
        body = raw[at + 7:at + 7 + length]
        if len(body) < length:
            return
        check(kind in (1, 2, 3, 4) and crc == zlib.crc32(bytes([kind]) + body), path, at)
        parts = [body] if kind in (1, 2) else parts + [body]
        at += 7 + length
        if kind in (1, 4):
            record = wandb_internal_pb2.Record()
            record.ParseFromString(b"".join(parts))
            yield record


def wandb_run(folder):
    """(ids, [(step, values)], summary) of all files, in the order in which they were begun."""
    ids, history, summary = set(), [], {}
    for path in sorted((folder / "track/wandb").glob("offline-run-*/run-*.wandb")):
        for record in wandb_records(path):
            kind = record.WhichOneof("record_type")
            if kind == "run":
                ids.add(record.run.run_id)
            elif kind == "history":
                values = {item.key or "/".join(item.nested_key): json.loads(item.value_json)
                          for item in record.history.item}
                history.append((record.history.step.num, values))
            elif kind == "summary":
                summary |= {item.key: json.loads(item.value_json)
                            for item in record.summary.update if item.key}
    return ids, history, summary


def wandb_steps(folder):
    return [step for step, _ in wandb_run(folder)[1]]


# ---- MLflow's database, by its own client -------------------------------------------------------
def mlflow_run():
    """The only run; {key: [(step, value)]} of it."""
    client = mlflow.MlflowClient()
    experiment = client.get_experiment_by_name("lockstep-test")
    found = client.search_runs([experiment.experiment_id]) if experiment else []
    check(len(found) <= 1, found)
    if not found:
        return None, {}
    return found[0], {key: [(each.step, each.value)
                            for each in client.get_metric_history(found[0].info.run_id, key)]
                      for key in found[0].data.metrics}


def mlflow_steps():
    return [step for step, _ in mlflow_run()[1].get("loss", [])]


# ---- What both must have ------------------------------------------------------------------------
def expected_of(folder):
    """{step: {key: value}}: the numbers of its first line."""
    steps = {}
    for line in metrics(folder):
        if line["step"] not in steps:
            steps[line["step"]] = {key: value for key, value in line.items()
                                   if isinstance(value, (int, float)) and key not in ("step", "t")}
    return steps


def killed_twice(test):
    """A rank is killed, then the agent with all ranks; the exporters are killed between."""
    folder = test.folder / "killed_twice"
    exporters = [Exporter(test, folder, each) for each in ("wandb", "mlflow")]
    launch = Launch(test, folder.name, "2,3", KEYS | {
        "debug.stop_at": "1:1:step:8,2:0:update:21"})
    send(launch.stopped(1, 1), signal.SIGKILL)
    launch.stopped(0, 2)
    launch.process.kill()
    launch.process.wait()
    logged = len(expected_of(folder))
    check(0 < logged < STEPS and len(metrics(folder)) > logged, f"{logged} steps, none redone")
    for steps, exporter in ((lambda: wandb_steps(folder), exporters[0]),
                            (mlflow_steps, exporters[1])):
        wait_until(lambda steps=steps: len(steps()) >= logged // 2, "half of the steps",
                   START_TIMEOUT_S, 0.5)
        exporter.kill()
    exporters = [Exporter(test, folder, each) for each in ("wandb", "mlflow")]
    Launch(test, folder.name, "1", KEYS).expect(0)
    check(sorted(expected_of(folder)) == list(range(1, STEPS + 1)), "the run lacks steps")
    for exporter in exporters:
        printed = exporter.expect_end()
        check("WARNING" not in printed and f"{STEPS} steps" in printed, printed)
    for each in ("wandb", "mlflow"):  # nothing is left to say
        Exporter(test, folder, each, "--once").expect_end()
    return folder


def in_wandb(folder):
    ids, history, summary = wandb_run(folder)
    check(len(ids) == 1, ids)
    check([step for step, _ in history] == list(range(1, STEPS + 1)), [s for s, _ in history])
    for step, values in history:
        for key, value in expected_of(folder)[step].items():
            check(values.get(key) == value, step, key, values.get(key), value)
    check(sum("validation_loss" in values for _, values in history) == STEPS // 10, history)
    files = list((folder / "track/wandb").glob("offline-run-*/run-*.wandb"))
    check(len(files) == 3, files)  # of the killed exporter, of the next one, of --once
    said = [summary[key] for key in sorted(summary) if key.startswith("event/")]
    check(sum("failure_detected" in each for each in said) == 1, said)
    check(summary["state"] == "done" and summary["checkpoint_step"] == STEPS, summary)
    check(summary["memory/rss_GB/max"] > 0, summary)


def in_mlflow(folder):
    run, history = mlflow_run()
    expected = expected_of(folder)
    for key in {key for values in expected.values() for key in values}:
        wanted = [(step, values[key]) for step, values in sorted(expected.items())
                  if key in values]
        check(history[key] == wanted, key, history[key], wanted)
    check(len(history["validation_loss"]) == STEPS // 10, history["validation_loss"])
    check(run.info.status == "FINISHED" and run.info.run_name == folder.name, run.info)
    check(run.data.params["training.steps"] == str(STEPS), run.data.params)
    tags = run.data.tags
    said = [tags[key] for key in sorted(tags) if key.startswith("event/")]
    check(sum("failure_detected" in each for each in said) == 1, said)
    check(tags["state"] == "done" and tags["checkpoint_step"] == str(STEPS), tags)
    check(float(tags["memory/rss_GB/max"]) > 0, tags)


def other_bits(test, folder):
    """What no run of ours does: a step that is redone has another loss. And a loss that is none."""
    copy = test.folder / "other_bits"
    shutil.copytree(folder, copy, ignore=shutil.ignore_patterns("track"))
    lines = [json.loads(line) for line in (copy / "metrics.jsonl").read_text().splitlines()]
    wrong = lines[-1] | {"loss": 0.5, "loss_hex": (0.5).hex()}
    none = lines[-1] | {"step": STEPS + 1, "loss": None, "loss_hex": "nan"}
    with open(copy / "metrics.jsonl", "a", encoding="utf-8") as file:
        file.write(json.dumps(wrong) + "\nnot a line\n" + json.dumps(none) + "\n")
    for each in ("wandb", "mlflow"):
        printed = Exporter(test, copy, each, "--once").expect_end()
        check(f"WARNING: step {STEPS} was repeated with other bits" in printed, printed)
    _, history, summary = wandb_run(copy)
    check(history[-1][0] == STEPS + 1 and math.isnan(float(history[-1][1]["loss"])), history[-1])
    check(history[-2][1]["loss"] == lines[-1]["loss"], history[-2])
    check(summary["redone_with_other_bits"] == [STEPS], summary)
    client = mlflow.MlflowClient()
    number = client.get_experiment_by_name("lockstep-test").experiment_id
    run = client.search_runs([number], f"attributes.run_name = '{copy.name}'")[0]
    losses = client.get_metric_history(run.info.run_id, "loss")
    check([each.step for each in losses] == list(range(1, STEPS + 2)), losses)
    check(math.isnan(losses[-1].value) and losses[-2].value == lines[-1]["loss"], losses[-2:])
    check(run.data.tags["redone_with_other_bits"] == f"[{STEPS}]", run.data.tags)


def wrong_input(test):
    nowhere = Exporter(test, test.folder / "nowhere", "mlflow", "--once").expect_end(64)
    check("no run has started" in nowhere, nowhere)


with Test("track") as test:
    test.environment |= {"LOCKSTEP_PYTHON": sys.executable, "WANDB_MODE": "offline",
                         "MLFLOW_TRACKING_URI": f"sqlite:///{test.folder}/mlflow.db",
                         "GIT_PYTHON_REFRESH": "quiet"}
    mlflow.set_tracking_uri(test.environment["MLFLOW_TRACKING_URI"])
    mlflow.MlflowClient()  # makes the database: two clients that begin at once disturb each other
    killed = None
    with test.case("a run killed twice, exporters killed once"):
        killed = killed_twice(test)
    with test.case("W&B has each step once, with its values"):
        in_wandb(killed)
    with test.case("MLflow has each step once, with its values"):
        in_mlflow(killed)
    with test.case("other bits, a damaged line, no number"):
        other_bits(test, killed)
    with test.case("no run"):
        wrong_input(test)
