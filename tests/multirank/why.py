"""`lockstep why` on run folders that real runs left behind: one sentence on the first cause, where
it was, what it cost and what to do. And commands that are refused leave a sound run as it was."""
import json
import os
import pathlib
import signal

from agents import Agents
from audit_runs import ACTIVATION, AUDITED, BIT, FOR_GOOD
from small_disk import Disk
from launched import Launch
from lockstep_run import (EXIT_CONFIG, EXIT_DISK_FULL, EXIT_RESUME, EXIT_WRONG_BITS, TINY, Test,
                          check, committed, events, program, send, send_if_there, wait_until)

KEYS = TINY | {"checkpoint.interval": 4, "checkpoint.when_busy": "wait"}
EXIT_NO_PROGRESS = 93


def told(test, folder, **expected):
    """What is said of the run, with these fields; both forms of it are printed."""
    said = json.loads(test.command("why", folder, "--json"))
    words = test.command("why", folder)
    print("".join(f"       {line}\n" for line in words.splitlines()), end="")
    check(said["what"] in words, words)
    for key, value in expected.items():
        check(said[key] == value, f"{key} is {said[key]}, not {value}:\n{words}")
    check(said["well"] or said["to_do"], words)
    return said


def host():
    return os.uname().nodename


def a_killed_worker(test):
    launch = Launch(test, "killed", "2", KEYS | {"debug.stop_at": "1:1:step:11"})
    send(launch.stopped(1), signal.SIGKILL)
    launch.expect(0)
    said = told(test, launch.folder, cause="worker_killed", rank=1, node=host(), step=11, gpu=None)
    check(said["cost"]["steps_again"] == 2 and said["cost"]["seconds_down"] > 0, said)
    recovered = launch.events("recovered")[0]
    check(recovered["redone_steps"] == 2 and recovered["redone_s"] > 0, recovered)
    check(recovered["step"] == 9, recovered)
    check("2 steps (about 0." in launch.log() and "computed again" in launch.log(), launch.log())
    check([link["event"] for link in said["chain"]][:1] == ["failure_detected"], said["chain"])


def a_refused_command(test):
    """Of the run above, which is done: 64 before anything starts, also with --dry-run."""
    folder = test.folder / "killed"
    before = len(events(folder))
    config = test.folder / "config.toml"
    for key, value, word in (("model.dim", 128, "model.dim: checkpoint 64, config 128"),
                             ("training.slots", 8, "give --training.slots 4"),
                             ("optimizer.name", "Muon", "give --optimizer.name AdamW")):
        words = [f"--{name}={each}" for name, each in (KEYS | {
            "data.path": test.tokens(), key: value, "job.dump_folder": folder}).items()]
        for command in (["train"], ["launch", "--nproc-per-node=2"], ["train", "--dry-run"]):
            said = test.command(command[0], config, *words, *command[1:], status=EXIT_CONFIG)
            check(word in said, said)
    check(len(events(folder)) == before, "a refused command wrote events")
    check(json.loads(test.command("status", folder, "--json"))["state"] == "done", "not done")


def a_checkpoint_without_a_file(test):
    folder = test.folder / "killed"
    newest = folder / "checkpoints" / committed(folder)[0]
    (newest / "index.h5").unlink()
    said = test.command("checkpoint", "verify", folder)
    check("index.h5 is missing" in said and "whole" in said, said)
    (newest / "rank_00001.h5").unlink()
    lines = test.command("checkpoint", "list", folder).splitlines()
    check("NOT USABLE: rank_00001.h5 is missing" in lines[0] and "NOT" not in lines[1], lines)


def checkpoints_without_manifests(test):
    """--dry-run says what train says: nothing can be used, and it does not start over."""
    launch = Launch(test, "copied", "2", KEYS)
    launch.expect(0)
    for manifest in launch.folder.glob("checkpoints/step_*/manifest.json"):
        manifest.unlink()
    words = [f"--{name}={each}" for name, each in (KEYS | {
        "data.path": test.tokens(), "job.dump_folder": launch.folder}).items()]
    for more in ([], ["--dry-run"]):
        said = test.command("train", test.folder / "config.toml", *words, *more,
                            status=EXIT_CONFIG)
        check("or move the folder away to start from step 0" in said, said)


def not_finite(test):
    launch = Launch(test, "nan", "2", KEYS | {"debug.nan_steps": "6"})
    launch.expect(EXIT_CONFIG)
    said = told(test, launch.folder, cause="not_finite", step=6, exit_status=EXIT_CONFIG)
    check("Lower optimizer.lr" in said["to_do"][0], said)
    check(f"`lockstep why {launch.folder}`" in launch.log(), launch.log())
    check("`lockstep why " in test.command("status", launch.folder), "status does not mention it")


def a_stop(test):
    launch = Launch(test, "stopped", "2", KEYS | {"debug.stop_at": "1:1:step:7"})
    launch.ask_to_stop(launch.stopped(1))
    launch.expect(EXIT_RESUME)
    said = told(test, launch.folder, cause="stop_requested", state="stopped")
    check(said["cost"]["steps_again"] == 0, said)


def an_agent_that_was_killed(test):
    launch = Launch(test, "agent", "2", KEYS | {"debug.stop_at": "1:1:step:7"})
    launch.stopped(1)
    launch.process.kill()
    launch.process.wait()
    told(test, launch.folder, cause="agent_gone", state="agent_gone")


def a_stopped_worker(test):
    launch = Launch(test, "frozen", "2", KEYS | {"debug.stop_at": "1:1:step:7"})
    launch.expect(0)  # its agent kills it after 5 s
    said = told(test, launch.folder, cause="worker_stopped", rank=1)
    check(said["cost"]["seconds_down"] >= 5, said)


def restarts_in_vain(test):
    points = ",".join(f"{generation}:1:step:3" for generation in (1, 2, 3, 4))
    launch = Launch(test, "vain", "2", KEYS | {"debug.stop_at": points})
    for generation in (1, 2, 3, 4):
        send(launch.stopped(1, generation), signal.SIGKILL)
    launch.expect(EXIT_NO_PROGRESS)
    said = told(test, launch.folder, cause="worker_killed", generation=1, failures=4)
    check("It restarted 3 times" in said["run_did"], said)


def a_full_disk(test):
    disk = Disk(test, "full")
    disk.leave(200_000)
    launch = Launch(test, "full", "2", KEYS | {"checkpoint.outage_minutes": 0})
    launch.expect(EXIT_DISK_FULL)
    said = told(test, launch.folder, cause="disk_full", exit_status=EXIT_DISK_FULL)
    check(str(disk.root) in said["error"], said)


def wrong_bits(test):
    test.environment["LOCKSTEP_FLIP_BIT"] = f"6 1 {ACTIVATION} 77 {BIT}{FOR_GOOD}"
    test.environment["LOCKSTEP_WORKER"] = program("lockstep-flip-worker")
    launch = Launch(test, "bits", "3", AUDITED | {"audit.action": "stop"})
    launch.expect(EXIT_WRONG_BITS)
    del test.environment["LOCKSTEP_FLIP_BIT"], test.environment["LOCKSTEP_WORKER"]
    said = told(test, launch.folder, cause="wrong_bits", exit_status=EXIT_WRONG_BITS, rank=1,
                node=host())
    check("rank 1 on " in said["what"] and said["remarks"], said)


def a_lost_node(test):
    nodes = Agents(test, "nodes", 3, "1:3", {"training.steps": 30, "debug.stop_at": "1:0:step:7"})
    worker = nodes.stopped(0)
    lost = nodes.another()

    def disturb():
        nodes.kill_agent(lost)
        send_if_there(worker["pid"], signal.SIGCONT)
    nodes.after(disturb, 2, f"SIGKILL of the agent {lost}")
    wait_until(lambda: nodes.events("recovered"), "the recovery")
    shown = test.command("status", nodes.folder)
    if nodes.members()["state"] == "running":
        check("now: running on 2 of 3 nodes" in shown, shown)
    nodes.expect(0)
    said = told(test, nodes.folder, cause="node_lost", node=lost)
    check(f"Node {lost} was lost" in said["what"], said)
    spawned = nodes.events("spawned")[0]["nodes"]
    check(sorted(spawned) == ["n0", "n1", "n2"], spawned)


def a_healthy_run(test):
    launch = Launch(test, "well", "2", KEYS)
    launch.expect(0)
    said = told(test, launch.folder, well=True)
    check("It is done, at step 20 of 20; nothing has failed" in said["what"], said)


with Test("why") as test:
    for case in (a_killed_worker, a_refused_command, a_checkpoint_without_a_file,
                 checkpoints_without_manifests, not_finite, a_stop, an_agent_that_was_killed,
                 a_stopped_worker, restarts_in_vain, a_full_disk, wrong_bits, a_lost_node,
                 a_healthy_run):
        with test.case(case.__name__.replace("_", " ")):
            case(test)
    with test.case("no run"):
        test.command("why", test.folder, status=EXIT_CONFIG)
        test.command("why", status=EXIT_CONFIG)
        test.command("why", pathlib.Path(test.folder), "--what", status=EXIT_CONFIG)
