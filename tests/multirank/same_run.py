"""All ranks compute the same run, and one launch of a machine writes into a run folder: what is
not so is said before the first step, by every rank or by the second launch, with status 64."""
import signal

from agents import Agents
from launched import Launch
from lockstep_run import (EXIT_CONFIG, EXIT_RESUME, NO_CHECKPOINTS, TINY, Test, check, check_same,
                          committed, events, metrics, send, tail, wait_until, whole_curve)

STEPS = 8
KEYS = TINY | {"training.steps": STEPS, "checkpoint.interval": 4}
# What one rank has otherwise, and what every rank's error must hold.
OTHER_KEYS = (
    ("identity", {"optimizer.lr": 9e-3, "training.seed": 7}, NO_CHECKPOINTS,
     ["optimizer.lr is 0.009, and 0.002 on rank 0", "training.seed is 7, and "]),
    ("identity, with checkpoints", {"training.seed": 7}, {}, ["training.seed is 7, and "]),
    ("steps", {"training.steps": 9, "lr_scheduler.total_steps": STEPS},
     {"lr_scheduler.total_steps": STEPS}, ["training.steps is 9, and 8 on rank 0"]),
    ("without checkpoints", NO_CHECKPOINTS, {}, ["checkpoint.enable is false, and true on rank 0"]),
    ("groups of ranks", {"checkpoint.buddy": "true"}, {"checkpoint.memory_interval": 2},
     ["checkpoint.buddy is true, and false on rank 0"]),
    ("validation", {"validation.freq": 4}, {}, ["validation.freq is 4, and 0 on rank 0"]),
)


def nothing_trained(folder):
    check(not metrics(folder) and not committed(folder), f"{folder}: something was trained")


def every_rank_says(run, words, odd):
    run.expect(EXIT_CONFIG, timeout_s=30)
    for rank in range(len(run.logs)):
        for word in (f"rank {odd} has a different ", *words):
            check(word in run.log(rank), f"rank {rank} says nothing of {word}\n{run.log(rank)}")


def other_keys(test, own, keys, words):
    folder = test.folder / f"other_{test.cases}"
    run = test.ranks(folder, 3, KEYS | keys, lambda rank: own if rank == 2 else {})
    every_rank_says(run, words, 2)
    nothing_trained(folder)


def other_data(test):
    folder = test.folder / "other_data"
    other = test.tokens(files=20, words=2600)
    run = test.ranks(folder, 2, KEYS, lambda rank: {"data.path": other} if rank == 1 else {})
    every_rank_says(run, ["a different identity than rank 0", "data.manifest is "], 1)
    nothing_trained(folder)


def rank_0_is_the_odd_one(test):
    folder = test.folder / "rank_0"
    run = test.ranks(folder, 3, KEYS, lambda rank: {"training.seed": 7} if rank == 0 else {})
    every_rank_says(run, ["training.seed is ", " and 7 on rank 0", "differ from rank 0: 2"], 1)


def two_nodes(test):
    for keys in (NO_CHECKPOINTS, {}):
        nodes = Agents(test, f"nodes_{len(keys)}", 1, "2", {"training.steps": STEPS} | keys)
        nodes.add(1, {"optimizer.lr": 9e-3, "training.seed": 7})
        nodes.expect(EXIT_CONFIG)
        logs = nodes.log()
        ranks = [(nodes.folder / f"logs/rank_0000{rank}.log").read_text() for rank in (0, 1)]
        for word in ("rank 1 has a different config than rank 0", "lr is ", "0.002", "0.009",
                     "training.seed is "):  # either node may have rank 0
            check(all(word in said for said in (logs, *ranks)), f"no {word}\n{logs}\n{ranks}")
        check(len(events(nodes.folder, "generation_start")) == 1, events(nodes.folder))
        nothing_trained(nodes.folder)


def launches_at_once(test, reference):
    """Several times: who is first differs. Its worker stops itself, so that it cannot be done
    before the other one has looked."""
    for number in range(3):
        keys = KEYS | {"debug.stop_at": "1:0:load:0"}
        both = [Launch(test, f"at_once_{number}", "1", keys) for _ in range(2)]
        wait_until(lambda both=both: any(launch.process.poll() is not None for launch in both),
                   "one that is refused")
        first = next((launch for launch in both if launch.process.poll() is None), None)
        check(first, f"both are refused\n{both[0].log()}")
        send(first.stopped(0), signal.SIGCONT)
        statuses = sorted(launch.process.wait(60) for launch in both)
        said = both[0].log()  # of both
        check(statuses == [0, EXIT_CONFIG], f"exit statuses {statuses}\n{tail(said)}")
        check("is being trained by" in said and "--job.dump_folder" in said, tail(said))
        check(len(metrics(both[0].folder)) == STEPS, metrics(both[0].folder))
        check_same(reference, whole_curve(both[0].folder, STEPS), "beside a refused launch")


def taken_over(test, reference):
    """A second run starts in the folder from a machine whose lock this one does not see."""
    folder = test.folder / "taken"
    keys = KEYS | {"checkpoint.interval": 2, "checkpoint.when_busy": "wait"}
    first = test.ranks(folder, 2, keys, stop_at="0:step:3")
    stopped = first.await_stop()
    second = test.ranks(folder, 2, keys)
    second.expect(0)
    stopped.send_signal(signal.SIGCONT)
    first.expect(EXIT_RESUME)
    said = first.all_logs()
    check("another run has started in this folder, so this one ends" in said and
          "Give each run its own --job.dump_folder" in said, tail(said))
    check_same(reference, whole_curve(folder, STEPS), "the run that took the folder")


with Test("same_run") as test:
    for name, own, keys, words in OTHER_KEYS:
        with test.case(f"one rank has other keys: {name}"):
            other_keys(test, own, keys, words)
    for case in (other_data, rank_0_is_the_odd_one, two_nodes):
        with test.case(case.__name__.replace("_", " ")):
            case(test)
    with test.case("launches at once"):
        launches_at_once(test, whole_curve(
            test.train("reference", 1, KEYS), STEPS))
    with test.case("taken over"):
        taken_over(test, whole_curve(test.folder / "reference", STEPS))
