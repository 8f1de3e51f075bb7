"""Ranks of a node that share a file of a checkpoint (checkpoint.ranks_per_file): fewer files, the
same losses. A rank that hands its chunks over and the one that writes them are killed during a
save: nothing of it stays, and the run goes on from the save before, at other world sizes."""
import json
import os
import signal

from lockstep_run import (EXIT_CONFIG, EXIT_PEER_LOST, SMALL, Test, check, check_same, committed,
                          metrics, program, step_of, tail, wait_until, whole_curve)

STEPS = 12
KEYS = SMALL | {"training.steps": STEPS, "checkpoint.interval": 4, "checkpoint.keep_latest_k": 2,
                "checkpoint.when_busy": "wait"}


def sharing(ranks_per_file):
    return KEYS | {"checkpoint.ranks_per_file": ranks_per_file}


def check_files(test, folder, writers):
    """Each checkpoint has the files of these ranks, and the commands take it."""
    names = [f"rank_{rank:05d}.h5" for rank in writers]
    for checkpoint in committed(folder):
        directory = folder / "checkpoints" / checkpoint
        found = sorted(path.name for path in directory.glob("rank_*.h5"))
        check(found == names, f"{checkpoint}: {found}, not {names}")
        test.command("checkpoint", "verify", directory)
        inspected = json.loads(test.command("checkpoint", "inspect", directory, "--json"))
        check([file["name"] for file in inspected["files"]] == names, inspected)
        manifest = json.loads((directory / "manifest.json").read_text())
        check(manifest["world_size"] == 4, manifest["world_size"])


def killed_in_a_save(test, folder, victim):
    """One of 4 ranks is killed at the save of step 8, before it has written or handed over any."""
    run = test.ranks(folder, 4, sharing(4), stop_at=f"{victim}:writing:8")
    run.await_stop().kill()
    statuses = run.wait()
    check(sorted(statuses) == [-signal.SIGKILL] + [EXIT_PEER_LOST] * 3,
          f"exit statuses {statuses}\n{tail(run.all_logs(), 60)}")
    check([step_of(name) for name in committed(folder)] == [4], f"there are {committed(folder)}")


def dies_with_chunks_handed_over(test, folder):
    """The writer stands still at the save of step 8, so nobody has taken a chunk of rank 2 when it
    dies."""
    run = test.ranks(folder, 4, sharing(4), stop_at="0:writing:8")
    writer = run.await_stop()
    wait_until(lambda: run.pages[2].read()[2] == "writing", "rank 2 hands over")
    run.processes[2].kill()
    run.processes[2].wait()
    writer.send_signal(signal.SIGCONT)
    statuses = run.wait()
    check(sorted(statuses) == [-signal.SIGKILL] + [EXIT_PEER_LOST] * 3,
          f"exit statuses {statuses}\n{tail(run.all_logs(), 60)}")
    check([step_of(name) for name in committed(folder)] == [4], f"there are {committed(folder)}")


def may_not_see_each_others_memory(test):
    """Rank 2 is in a container of its own: all say so at the start, and which key helps."""
    contained = test.folder / "contained-worker"
    as_root = "" if os.geteuid() == 0 else "sudo -n --preserve-env "
    apart = (f"{as_root}unshare --pid --fork --kill-child --setgid {os.getegid()} "
             f"--setuid {os.geteuid()} ")
    worker = program("lockstep-worker")
    contained.write_text(f'#!/bin/sh\n[ $RANK = 2 ] && exec {apart} {worker} "$@"\n'
                         f'exec {worker} "$@"\n')
    contained.chmod(0o755)
    run = test.ranks(test.folder / "contained", 4, sharing(4), worker=contained)
    run.expect(EXIT_CONFIG)
    for rank in range(4):
        check("cannot open the shared memory of rank " in run.log(rank) and
              "or set checkpoint.ranks_per_file = 1" in run.log(rank), tail(run.log(rank)))


def goes_on(test, folder, world_size, reference):
    """From step 4 to the end."""
    lines = len(metrics(folder))
    run = test.ranks(folder, world_size, sharing(4))
    run.expect(0)
    check(metrics(folder)[lines]["step"] == 5, f"resumed elsewhere\n{tail(run.log(), 60)}")
    check_same(reference, whole_curve(folder, STEPS), f"{folder.name}, W = {world_size}")
    left = sorted(path.name for path in (folder / "checkpoints").glob("step_*"))
    check(left == sorted(committed(folder)), f"the abandoned save is still there: {left}")
    test.command("checkpoint", "verify", folder)
    files = list((folder / "checkpoints" / committed(folder)[0]).glob("rank_*.h5"))
    check(len(files) == 1, files)


with Test("shared_files") as test:
    with test.case("each rank has its own file"):
        own = test.train("own", 4, sharing(1))
        check_files(test, own, range(4))
        reference = whole_curve(own, STEPS)
    for ranks_per_file in (4, 2):
        with test.case(f"{ranks_per_file} ranks a file"):
            folder = test.train(f"shared_by_{ranks_per_file}", 4, sharing(ranks_per_file))
            check_files(test, folder, range(0, 4, ranks_per_file))
            check_same(reference, whole_curve(folder, STEPS), folder.name)
    for victim, world_size in ((2, 3), (0, 1)):
        with test.case(f"rank {victim} of 4 is killed in a save, {world_size} go on"):
            folder = test.folder / f"killed_{victim}"
            killed_in_a_save(test, folder, victim)
            goes_on(test, folder, world_size, reference)
    with test.case("a rank is in a container of its own"):
        may_not_see_each_others_memory(test)
    with test.case("a rank dies while the writer has taken none of its chunks, 3 go on"):
        folder = test.folder / "handed_over"
        dies_with_chunks_handed_over(test, folder)
        goes_on(test, folder, 3, reference)
