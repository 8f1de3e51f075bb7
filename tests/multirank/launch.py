"""`lockstep launch` end to end: workers are killed, the agent goes on; it is asked to stop, it
saves; it is killed itself, nothing is left of it."""
import json
import resource
import signal
import time
import xml.etree.ElementTree

from launched import Launch, next_step
from lockstep_run import (EXIT_RESUME, TINY, Test, check, check_same, committed, members, metrics,
                          send, send_if_there, state_of, step_of, tail, wait_until, whole_curve)

STEPS = 40
KEYS = TINY | {"model.dim": 128, "model.n_heads": 4, "model.ffn_dim": 352, "training.seq_len": 128,
               "training.steps": STEPS, "checkpoint.interval": 3}


def stop_at(*points):
    return {"debug.stop_at": ",".join(points)}


def killed_twice(test, reference):
    """Its workers may have as many descriptors as the system lets them, though the shell that
    started the launch has the usual few: a rank of many takes one or two for each other one."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, hard))  # the launch inherits it
    try:
        launch = Launch(test, "killed_twice", "2,3,1",
                        KEYS | stop_at("1:1:step:8", "2:0:update:21"))
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    for generation, rank in ((1, 1), (2, 0)):
        pid = launch.stopped(rank, generation)
        check(resource.prlimit(pid, resource.RLIMIT_NOFILE) == (hard, hard), "descriptors")
        moment = time.time()
        send(pid, signal.SIGKILL)
        seconds = next_step(launch, generation + 1, moment)
        print(f"       rank {rank} of generation {generation} killed: next completed step after "
              f"{seconds:.2f} s", flush=True)
    launch.expect(0)
    check_same(reference, whole_curve(launch.folder, STEPS), "killed twice")
    sizes = []
    for line in metrics(launch.folder):
        if not sizes or sizes[-1] != line["world_size"]:
            sizes.append(line["world_size"])
    check(sizes == [2, 3, 1], f"world sizes {sizes}")
    failures = launch.events("failure_detected")
    check([each["reason"] for each in failures] == ["killed by SIGKILL"] * 2,
          f"{failures}\n{tail(launch.log(), 60)}")
    starts = [each["world_size"] for each in launch.events("generation_start")]
    check(starts == [2, 3, 1], launch.events("generation_start"))
    recoveries = launch.events("recovered")
    check(len(recoveries) == 2, launch.events())
    for each in recoveries:
        print(f"       {each['reason']}")
    check(launch.events()[-1]["event"] == "done", launch.events()[-1])
    check("SIGKILL" in launch.log(), "the closing table does not name the signal")
    summary = json.loads((launch.folder / "metrics.json").read_text())
    check(summary["finished"] and summary["redone_mismatches"] == 0, summary)
    check(summary["restarts"] == 2, f"metrics.json tells of {summary['restarts']} restarts")
    return launch.folder


def killed_before_the_first_save(test, reference):
    launch = Launch(test, "killed_early", "3,2",
                    KEYS | {"checkpoint.interval": 30} | stop_at("1:2:step:5"))
    send(launch.stopped(2), signal.SIGKILL)
    launch.expect(0)
    check_same(reference, whole_curve(launch.folder, STEPS), "killed before the first save")


def stopped_by_sigterm(test, reference):
    launch = Launch(test, "stopped", "2", KEYS | stop_at("1:1:step:8"))
    launch.ask_to_stop(launch.stopped(1))
    workers = [each["pid"] for each in members(launch.folder)["workers"]]
    # A signal may come at any point of a kernel of a library: it must not touch the computation.
    for _ in range(100):
        for worker in workers:
            send_if_there(worker, signal.SIGTERM)
        time.sleep(0.0005)
    launch.expect(EXIT_RESUME)
    last = metrics(launch.folder)[-1]["step"]
    newest = committed(launch.folder)[0]
    check(last < STEPS and step_of(newest) == last, f"step {last} done, {newest} saved\n"
          f"{tail(launch.log(), 60)}")
    check("lockstep launch" in launch.log(), "no command to resume with is shown")
    shown_once(launch, "stopped on request after step")
    shown_once(launch, f"stopped at step {last}: results, logs and checkpoints are in "
                       f"{launch.folder}")
    for log in (launch.folder / "logs").glob("rank_*.log"):
        check(" ERROR " not in log.read_text(), f"a stop is an error\n{tail(log.read_text())}")
    lines = len(metrics(launch.folder))
    Launch(test, "stopped", "3", KEYS).expect(0)
    first = metrics(launch.folder)[lines]["step"]
    check(first == last + 1, f"went on at step {first}, not {last + 1}")
    check_same(reference, whole_curve(launch.folder, STEPS), "stopped and started again")


def stopped_in_a_validation(test, reference):
    """It would take longer than the grace. It ends between two slots, and the save comes."""
    keys = KEYS | {"validation.freq": 4, "validation.slots": 600, "launcher.grace_seconds": 2}
    launch = Launch(test, "validates", "2", keys | stop_at("1:0:eval:4"))
    asked = time.time()
    launch.ask_to_stop(launch.stopped(0))
    launch.expect(EXIT_RESUME)
    last = metrics(launch.folder)[-1]["step"]
    newest = committed(launch.folder)[0]
    check(step_of(newest) == last == 4,
          f"step {last} done, {newest} saved\n{tail(launch.log(), 60)}")
    log = (launch.folder / "logs" / "rank_00000.log").read_text()
    check("the validation after step 4 ends after slot" in log, tail(log, 60))
    print(f"       gone {time.time() - asked:.1f} s after SIGTERM, at step {last}", flush=True)
    Launch(test, "validates", "1", keys | {"validation.freq": 0}).expect(0)
    check_same(reference, whole_curve(launch.folder, STEPS), "stopped in a validation")


def stopped_before_a_validation(test, reference):
    keys = KEYS | {"validation.freq": 1, "validation.slots": 8}
    launch = Launch(test, "no_validation", "2", keys | stop_at("1:0:step:5"))
    launch.ask_to_stop(launch.stopped(0))
    launch.expect(EXIT_RESUME)
    last = metrics(launch.folder)[-1]
    check("validation_loss" not in last and "validation_loss" in metrics(launch.folder)[0], last)
    log = (launch.folder / "logs" / "rank_00000.log").read_text()
    check(f"skipping the validation after step {last['step']}, because a stop was requested" in log,
          tail(log, 60))


def agent_killed(test, reference):
    launch = Launch(test, "agent_killed", "2", KEYS | stop_at("1:1:step:9"))
    launch.stopped(1)
    pids = [each["pid"] for each in members(launch.folder)["workers"]]
    launch.process.kill()
    launch.process.wait()
    for pid in pids:
        wait_until(lambda pid=pid: not state_of(pid), f"the end of worker {pid}, which outlives it")
    again = Launch(test, "agent_killed", "1", KEYS)
    again.expect(0)
    check_same(reference, whole_curve(launch.folder, STEPS), "agent killed")
    shown_once(again, f"resumed from {again.folder}")
    shown_once(again, f"done at step {STEPS}: results, logs and checkpoints are in {again.folder}")
    shown_once(again, "tps, tflops and mfu are per rank, and the number of ranks is 1")
    over = Launch(test, "agent_killed", "1", KEYS | {"optimizer.lr": 0.5})
    over.expect(0)
    shown_once(over, "resuming under another identity")
    shown_once(over, "nothing to do: the newest checkpoint is at step")


def shown_once(launch, words):
    """Rank 0's words on the console, where its words on memory are not."""
    check(launch.log().count(words) == 1, f"{words!r} on the console\n{tail(launch.log(), 60)}")
    check("memory {" not in launch.log(), tail(launch.log(), 60))


def worker_hangs(test, reference):
    launch = Launch(test, "hangs", "2,1",
                    KEYS | {"launcher.hang_seconds": 4} | stop_at("1:1:step:9"))
    launch.expect(0)
    reasons = [each["reason"] for each in launch.events("failure_detected")]
    check(len(reasons) == 1 and "SIGSTOP" in reasons[0], reasons)
    check_same(reference, whole_curve(launch.folder, STEPS), "a worker was stopped")


def compare(test, reference_folder, folder):
    plot = test.folder / "loss.svg"
    printed = test.command("compare", reference_folder, folder, "--require-identical", "--plot",
                           plot)
    check(f"{STEPS} of {STEPS}" in printed, printed)
    check(xml.etree.ElementTree.parse(plot).getroot().tag.endswith("svg"), plot.read_text()[:200])
    check("SIGKILL" in plot.read_text(), "the plot does not mark the kills")
    other = test.train("other_seed", 1, KEYS | {"training.seed": 43, "checkpoint.enable": "false"})
    test.command("compare", reference_folder, other, "--require-identical", status=1)


def interrupted_again_and_again(test, reference):
    """Ctrl-C every 10 ms until it has ended: none of them ends the agent itself."""
    launch = Launch(test, "interrupted", "2", KEYS | stop_at("1:1:step:8"))
    launch.stopped(1)
    while launch.process.poll() is None:
        launch.process.send_signal(signal.SIGINT)
        time.sleep(0.01)
    launch.expect(EXIT_RESUME)
    resumed = Launch(test, "interrupted", "2", KEYS)
    resumed.expect(0)
    check_same(reference, whole_curve(resumed.folder, STEPS), "interrupted")


with Test("launch") as test:
    reference_folder = test.folder / "reference"
    with test.case("the uninterrupted run"):
        reference = whole_curve(test.train("reference", 2, KEYS), STEPS)
    twice = None
    with test.case("two workers killed, 2, 3 and 1 ranks"):
        twice = killed_twice(test, reference)
    with test.case("compare"):
        check(twice is not None, "the run that was killed failed")
        compare(test, reference_folder, twice)
    for case in (killed_before_the_first_save, stopped_by_sigterm, stopped_in_a_validation,
                 stopped_before_a_validation, interrupted_again_and_again, agent_killed,
                 worker_hangs):
        with test.case(case.__name__.replace("_", " ")):
            case(test, reference)
