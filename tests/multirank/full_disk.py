"""A disk that fills up, or goes away, during a save: training continues, nothing is lost, and saves
are tried again. The disk is a tmpfs, so this test needs the right to mount one."""
import json
import re
import resource
import signal

from launched import Launch
from lockstep_run import (EXIT_CONFIG, EXIT_DISK_FULL, RUN_TIMEOUT_S, TINY, Test, check, check_same,
                          committed, step_of, tail, wait_until, whole_curve)
from small_disk import DISK_BYTES, Disk

STEPS = 30
KEYS = TINY | {"training.steps": STEPS, "checkpoint.interval": 2, "checkpoint.when_busy": "wait",
               "checkpoint.keep_latest_k": 2}
AT_ONCE = {"checkpoint.outage_minutes": 0}


def checkpoint_bytes(test):
    """What the largest checkpoint of this run takes, in pages."""
    folder = test.train("sizes", 2, KEYS | {"training.steps": 4})
    return max(sum(-(-path.stat().st_size // 4096) * 4096 for path in directory.iterdir())
               for directory in (folder / "checkpoints").glob("step_*"))


def ends_when_no_outage_is_allowed(test, size_bytes, reference):
    disk = Disk(test, "ends")
    disk.leave(size_bytes * 3 // 2)  # one checkpoint fits, the second fills the disk
    run = test.ranks(disk.folder, 2, KEYS | AT_ONCE)
    run.expect(EXIT_DISK_FULL)
    log = run.log()
    there = committed(disk.folder)
    check([step_of(name) for name in there] == [2], there)
    for words in ("the save of step 4 failed", f"disk full: {disk.root}", "No space left",
                  "saves have failed for longer than checkpoint.outage_minutes = 0"):
        check(words in log, f"not said: {words}\n{tail(log, 60)}")
    # One that was begun when the run ended may stay until the next start; none that failed does.
    left = {step_of(name) for name in disk.attempts()} - {2}
    check(4 not in left, f"left behind: {disk.attempts()}")
    disk.ballast.unlink()
    test.ranks(disk.folder, 3, KEYS).expect(0)
    check(disk.attempts() == sorted(committed(disk.folder)), f"left behind: {disk.attempts()}")
    check_same(reference, whole_curve(disk.folder, STEPS), "resumed with room again")


def status_names_the_disk(test, size_bytes, _):
    """What the rank said last stands where a user looks first."""
    disk = Disk(test, "launched")
    disk.leave(size_bytes // 2)
    launch = Launch(test, "launched", "2", KEYS | AT_ONCE)
    launch.expect(EXIT_DISK_FULL)
    check(len(launch.events("generation_start")) == 1, "restarted", launch.events())
    shown = test.command("status", launch.folder)
    said = rf"last error of that rank: rank \d: .*disk full: {disk.root}\S* .* more wanted"
    check(re.search(said, shown), shown)
    said = json.loads(test.command("status", launch.folder, "--json"))
    check("exit code 74" in said["last_failure"], said)
    check(said["last_error"] in shown and str(disk.root) in said["last_error"], said)


def goes_on_when_there_is_room(test, size_bytes, reference):
    disk = Disk(test, "goes_on")
    disk.leave(size_bytes * 3 // 2)
    run = test.ranks(disk.folder, 2, KEYS, stop_at="0:step:9")
    stopped = run.await_stop()  # the save of step 8 has waited for the one before it
    for words in ("the save of step 4 failed", "continues without saves for at most 10 minutes",
                  "the save of step 6 failed"):
        check(words in run.log(), tail(run.log()))
    disk.ballast.unlink()
    stopped.send_signal(signal.SIGCONT)
    run.expect(0)
    check("saves work again, after " in run.log(), tail(run.log()))
    check_same(reference, whole_curve(disk.folder, STEPS), "room came back")
    check(step_of(committed(disk.folder)[0]) == STEPS, committed(disk.folder))
    test.command("checkpoint", "verify", disk.folder)


def final_save_fails(test, size_bytes, reference):
    """The last save is not optional: the run does not end as if it had been saved."""
    disk = Disk(test, "final")
    disk.leave(size_bytes // 2)
    run = test.ranks(disk.folder, 2, KEYS | AT_ONCE | {"checkpoint.interval": 0})
    run.expect(EXIT_DISK_FULL)
    check(f"the final save of step {STEPS} failed" in run.log(), tail(run.log()))
    check(not committed(disk.folder), committed(disk.folder))
    check_same(reference, whole_curve(disk.folder, STEPS), "without a save")


def final_save_waits_for_room(test, size_bytes, reference):
    disk = Disk(test, "late")
    disk.leave(size_bytes // 2)
    run = test.ranks(disk.folder, 2, KEYS | {"checkpoint.interval": 0})
    wait_until(lambda: "the last save has not succeeded: it is tried again every 10 s until saves "
               "have failed for 10 minutes" in run.log(), "the last save fails")
    disk.ballast.unlink()
    run.expect(0)
    check("training continues" not in run.log(), tail(run.log()))
    check_same(reference, whole_curve(disk.folder, STEPS), "room came late")
    check([step_of(name) for name in committed(disk.folder)] == [STEPS], committed(disk.folder))
    test.command("checkpoint", "verify", disk.folder)


def a_stop_tries_once(test, size_bytes, _):
    """One Ctrl-C on a full disk: one save is tried, and the run says what is missing and ends."""
    disk = Disk(test, "stopped")
    disk.leave(size_bytes // 2)
    run = test.ranks(disk.folder, 2, KEYS | {"checkpoint.interval": 0}, stop_at="0:step:5")
    stopped = run.await_stop()
    for process in run.processes:
        process.send_signal(signal.SIGTERM)
    stopped.send_signal(signal.SIGCONT)
    run.expect(EXIT_DISK_FULL)
    log = run.log()
    for words in ("a stop was requested, and one save was tried: the final save of step",
                  "there is no checkpoint yet: free some space", "No space left"):
        check(words in log, f"not said: {words}\n{tail(log, 60)}")
    check(log.count("No space left") <= 4, f"said again and again\n{tail(log, 60)}")


def a_stop_ends_the_wait_for_room(test, size_bytes, _):
    disk = Disk(test, "impatient")
    disk.leave(size_bytes // 2)
    run = test.ranks(disk.folder, 2, KEYS | {"checkpoint.interval": 0})
    wait_until(lambda: "Press Ctrl-C to end the run without it" in run.log(), "the last save fails")
    for process in run.processes:
        process.send_signal(signal.SIGTERM)
    run.expect(EXIT_DISK_FULL)
    check("a stop was requested, and one save was tried" in run.log(), tail(run.log()))


def folder_goes_away(test, moment, reference):
    """The folder is gone from a moment of a save on, and comes back when saves have failed."""
    folder = test.folder / f"away_{moment}"
    run = test.ranks(folder, 2, KEYS, stop_at=f"0:{moment}:8")
    stopped = run.await_stop()
    root, away = folder / "checkpoints", folder / "away"
    root.rename(away)
    root.write_text("not a folder")
    stopped.send_signal(signal.SIGCONT)
    wait_until(lambda: f"the save of step {STEPS} failed" in run.log(), "the last save fails")
    root.unlink()
    away.rename(root)
    run.expect(0)
    check("training continues without saves" in run.log(), tail(run.log()))
    check_same(reference, whole_curve(folder, STEPS), "the folder was gone")
    check(step_of(committed(folder)[0]) == STEPS, committed(folder))
    test.command("checkpoint", "verify", folder)
    test.ranks(folder, 1, KEYS | {"training.steps": STEPS + 2}).expect(0)


def limited_files(test, reference):
    """A limit on file sizes (`ulimit -f`) below a checkpoint file ends no process by SIGXFSZ:
    shared memory is done without, and saves fail like those of a full disk."""
    most_bytes = 32 << 10
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    folder = test.folder / "limited"
    resource.setrlimit(resource.RLIMIT_FSIZE, (most_bytes, before[1]))  # the ranks inherit it
    try:
        run = test.ranks(folder, 2, KEYS | AT_ONCE | {"training.steps": 5})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    run.expect(EXIT_DISK_FULL)
    said = run.all_logs()
    for word in ("the save of step 2 failed", "beyond a limit on file sizes (`ulimit -f`)",
                 "File too large", "free some space, or raise the limit, and run the same command"):
        check(word in said, f"nothing about {word} in\n{tail(said, 60)}")
    check(not committed(folder), committed(folder))
    run = test.ranks(folder, 3, KEYS)
    run.expect(0)
    check_same(reference, whole_curve(folder, STEPS), "without the limit")


def memory_of_one_node_is_too_small(test):
    """Ranks that srun has started meet no agent: the one without room must tell the others, who
    would wait for it as buddies, for longer than this test."""
    small = Disk(test, "small_memory")
    small.leave(64 << 10)
    large = test.folder / "large_memory"
    large.mkdir()
    run = test.ranks(test.folder / "small_memory_run", 3,
                     KEYS | {"checkpoint.memory_interval": 2, "checkpoint.buddy": "true",
                             "comm.init_timeout_seconds": 10 * RUN_TIMEOUT_S},
                     own_keys=lambda rank: {
                         "checkpoint.memory_folder": small.root if rank == 1 else large})
    run.expect(EXIT_CONFIG)
    for rank in range(3):
        check("rank 1: snapshots in memory need" in run.log(rank), tail(run.log(rank)))


with Test("full_disk") as test:
    with test.case("the uninterrupted run"):
        reference = whole_curve(test.train("reference", 1, KEYS), STEPS)
        size_bytes = checkpoint_bytes(test)
        print(f"       a checkpoint takes {size_bytes} bytes")
        check(size_bytes * 3 < DISK_BYTES, "the disk is too small for the test")
    for case in (ends_when_no_outage_is_allowed, status_names_the_disk,
                 goes_on_when_there_is_room, final_save_fails, final_save_waits_for_room,
                 a_stop_tries_once, a_stop_ends_the_wait_for_room):
        with test.case(case.__name__.replace("_", " ")):
            case(test, size_bytes, reference)
    for moment in ("staging", "writing", "voting"):
        with test.case(f"the checkpoint folder goes away: {moment}"):
            folder_goes_away(test, moment, reference)
    with test.case("the memory of one node is too small"):
        memory_of_one_node_is_too_small(test)
    with test.case("a limit on file sizes"):
        limited_files(test, reference)
