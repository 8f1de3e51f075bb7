"""The whole worker on a simulated device (core/device/sim_world.h): ranks as processes, whose
tensors lie on it and travel through host memory. Losses, checkpoints and snapshots are those of the
CPU's worker, also after a kill. `simulated.py soak` draws the seeds of the devices."""
import json
import pathlib
import signal
import time

from launched import Launch, next_step
from lockstep_run import (NO_CHECKPOINTS, TINY, Page, Test, check, check_same, committed, metrics,
                          program, send, step_of, tail, wait_until, whole_curve)

STEPS = 8
BASE = TINY | {"training.steps": STEPS, "training.mixed_precision_param": "bfloat16",
               "validation.freq": 4, "validation.slots": 2}
# A save waits for the one before it: which steps are saved does not depend on how fast this is.
SAVING = BASE | {"checkpoint.interval": 3, "checkpoint.keep_latest_k": 9,
                 "checkpoint.when_busy": "wait"}
SIM = "lockstep-sim-worker"
# name, world size, keys
RUNS = (
    ("alone", 1, {"parallelism.strategy": "single"}),
    ("ddp", 2, {"parallelism.strategy": "ddp"}),
    ("full_shard", 3, {}),
    ("hybrid", 4, {"parallelism.strategy": "hybrid",
                   "parallelism.data_parallel_shard_degree": 2}),
    ("offload", 2, {"training.enable_cpu_offload": "true"}),
)


def fingerprints(folder):
    """Of the tensors of each committed checkpoint, by step."""
    found = {}
    for name in committed(folder):
        manifest = json.loads((folder / "checkpoints" / name / "manifest.json").read_text())
        found[step_of(name)] = {each["name"]: each["fingerprint"] for each in manifest["tensors"]}
    return found


def same_as_cpu(test, name, world_size, keys, base=SAVING):
    reference, simulated = test.folder / f"cpu {name}", test.folder / f"sim {name}"
    test.ranks(reference, world_size, base | keys).expect(0)
    test.ranks(simulated, world_size, base | keys, worker=SIM).expect(0)
    check("+ simulated" in (simulated / "run_args.json").read_text(), "it ran on the CPU")
    check_same(whole_curve(reference, STEPS), whole_curve(simulated, STEPS), name)
    ours, theirs = ([line["digests"] for line in metrics(folder)]
                    for folder in (simulated, reference))
    check(len(ours) == STEPS and ours == theirs, f"{name}: other digests")
    saved = fingerprints(reference)
    check(saved and saved == fingerprints(simulated), f"{name}: other checkpoints")


def killed(test, name, moment, keys, resumed):
    """A rank is killed; the next generation goes on from what was saved, on another world size."""
    folder = test.folder / f"killed {name}"
    run = test.ranks(folder, 3, SAVING | keys, stop_at=moment, worker=SIM)
    run.await_stop().kill()
    run.kill()
    after = test.ranks(folder, 2, SAVING | keys, worker=SIM)
    after.expect(0)
    check(resumed in after.all_logs(), f"not \"{resumed}\":\n", tail(after.all_logs()))
    return whole_curve(folder, STEPS)


def taken_over(test):
    """A process on a device ends with its generation: in the next one each rank has the process
    that was ready for it, and repeats the losses."""
    test.environment["LOCKSTEP_WORKER"] = program(SIM)
    launch = Launch(test, "taken over", "2", BASE | NO_CHECKPOINTS | {"training.steps": 100000})
    del test.environment["LOCKSTEP_WORKER"]
    folder = wait_until(lambda: launch.events("first_step") and launch.page_of(0).parent,
                        "the first step", 60)
    wait_until(lambda: metrics(launch.folder), "its line")
    wait_until(lambda: all(Page(folder / f"page_{i}").parked() for i in (2, 3)),
               "two are ready", 60)
    first = launch.events("spawned")[0]["pids"]
    agent = launch.process.pid
    children = pathlib.Path(f"/proc/{agent}/task/{agent}/children").read_text().split()
    ready = {int(child) for child in children} - set(first)
    moment = time.time()
    send(first[1], signal.SIGKILL)
    next_step(launch, 2, moment)
    second = launch.events("spawned")[1]["pids"]
    check(len(ready) == 2 and set(second) == ready, first, ready, second, tail(launch.log(), 60))
    launch.process.send_signal(signal.SIGTERM)
    launch.expect(75)
    whole = json.loads((launch.folder / "metrics.json").read_text())
    check(whole["redone_steps"] > 0 and whole["redone_mismatches"] == 0, whole)


with Test("simulated") as test:
    test.environment["LOCKSTEP_SIM_SEED"] = str(test.seed)
    for name, world_size, keys in RUNS:
        with test.case(f"{name} W={world_size}"):
            same_as_cpu(test, name, world_size, keys)
    source = test.folder / "cpu alone"
    with test.case("from another run's weights, but for what is excluded"):
        same_as_cpu(test, "excluded", 2, {"checkpoint.initial_load_path": source,
                                          "checkpoint.exclude_from_loading": "lm_head.*",
                                          "training.seed": 7})
    with test.case("from a Hugging Face folder"):
        test.command("export", source, test.folder / "hf")
        same_as_cpu(test, "folder", 2, {"model.hf_assets_path": test.folder / "hf"},
                    {key: SAVING[key] for key in SAVING if not key.startswith("model.")})
    reference = whole_curve(test.train("reference", 1, BASE | NO_CHECKPOINTS), STEPS)
    for moment in ("1:step:7", "2:update:8", "0:voting:6"):
        with test.case(f"a rank is killed at {moment}"):
            check_same(reference, killed(test, moment, moment, {}, "resumed from"), moment)
    for world_size in (1, 3):
        with test.case(f"audits name nobody, and change no bit: W={world_size}"):
            audited = test.folder / f"audited {world_size}"
            test.ranks(audited, world_size, BASE | NO_CHECKPOINTS | {"audit.interval": 1},
                       worker=SIM).expect(0)
            audits = [line["audit"] for line in metrics(audited)]
            check(len(audits) == STEPS and all(each["same"] for each in audits), audits)
            check_same(reference, whole_curve(audited, STEPS), "audited")
    with test.case("a recovery takes the processes that are ready"):
        taken_over(test)
    with test.case("snapshots in memory"):
        memory = test.folder / "memory"
        memory.mkdir()
        keys = {"checkpoint.memory_interval": 2, "checkpoint.memory_folder": memory,
                "checkpoint.interval": 4}  # the snapshot of step 4 reads what that save staged
        got = killed(test, "snapshots", "1:snapshot:6", keys, "resumed from memory")
        check_same(reference, got, "snapshots")
