"""A generation ends, its healthy processes do not: workers are killed and stopped at moments of
their own, while the others gather, exchange, save; these keep their pid and their start time, serve
the next generation, and the losses are those of a run left alone. `survivors.py soak` draws the
moments, and kills some time after them."""
import os
import signal
import time

from launched import Launch, next_step
from lockstep_run import (SOAK, TINY, Test, check, check_same, send, send_if_there,
                          whole_curve)

STEPS = 60
MOMENTS = ("step", "update", "staging", "writing", "voting", "committed", "save", "step")
RANKS = 3
KEYS = TINY | {"model.dim": 128, "model.n_heads": 4, "model.ffn_dim": 352, "training.seq_len": 128,
               "training.steps": STEPS, "checkpoint.interval": 2, "checkpoint.keep_latest_k": 2}
# Bytes that a process may have more after all kills: a few of the buffers that were under way.
MAX_GROWTH = 64 << 20


def started(pid):
    """When the process began, in clock ticks since boot: a pid alone may be given away again."""
    with open(f"/proc/{pid}/stat") as file:
        return pid, file.read().rsplit(")", 1)[1].split()[19]


def resident(pid):
    with open(f"/proc/{pid}/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def generations_of(launch):
    return [event["pids"] for event in launch.events("spawned")]


def too_slow(launch, pid):
    """Whether the agent ended a healthy worker that did not let go in a second: on a machine that
    has too much to do."""
    return f"worker {pid} did not leave its generation" in launch.log()


def points(random):
    """(victim, its stop point), by generation; rank 0 lives through all of them."""
    for generation in range(1, len(MOMENTS) + 1):
        victim = 1 + random.randrange(RANKS - 1)
        moment = random.choice(MOMENTS) if SOAK else MOMENTS[generation - 1]
        yield victim, f"{generation}:{victim}:{moment}:{6 * generation - 2}"


def killed_in_turn(test, reference):
    victims = list(points(test.random))
    launch = Launch(test, "killed_in_turn", str(RANKS), KEYS | {
        "debug.stop_at": ",".join(point for _, point in victims)})
    seconds, ended = [], 0
    for generation, (victim, _) in enumerate(victims, 1):
        pid = launch.stopped(victim, generation)
        if generation == 1:
            pids = generations_of(launch)[-1]
            born = [started(each) for each in pids]
            before = resident(pids[0])
        check(pid == pids[victim], f"rank {victim} is {pid}, not {pids}")
        if SOAK:
            send(pid, signal.SIGCONT)
            time.sleep(test.random.random() * 0.05)
        moment = time.time()
        send(pid, signal.SIGKILL)
        seconds.append(next_step(launch, generation + 1, moment))
        now = generations_of(launch)[-1]
        for rank in range(RANKS):
            if rank == victim:
                check(now[rank] != pids[rank], f"rank {rank} was killed: {now}")
                born[rank] = started(now[rank])
            else:
                same = now[rank] == pids[rank] and started(now[rank]) == born[rank]
                check(same or too_slow(launch, pids[rank]),
                      f"rank {rank} was healthy and has another process: {pids} -> {now}\n"
                      f"{launch.log()}")
                born[rank] = started(now[rank])
                ended += not same
        pids = now
    check(ended < len(victims), f"{ended} of {2 * len(victims)} healthy processes did not let go")
    grown = resident(pids[0]) - before
    print(f"       next completed step {min(seconds):.2f} to {max(seconds):.2f} s after a kill; "
          f"rank 0 has {grown / 2**20:+.0f} MiB after {len(victims)} generations", flush=True)
    check(grown < MAX_GROWTH, f"rank 0 grew by {grown} bytes in {len(victims)} generations")
    launch.expect(0)
    check_same(reference, whole_curve(launch.folder, STEPS), "killed in turn")


def stopped(test, reference):
    """SIGSTOP at a moment inside a step: it is found and replaced, long before a hang would be;
    SIGCONT to what is left."""
    where = ((1, 2, "step", 4), (2, 0, "update", 12), (3, 1, "writing", 20))
    launch = Launch(test, "stopped", str(RANKS), KEYS | {
        "debug.stop_at": ",".join(":".join(map(str, point)) for point in where)})
    for generation, victim, phase, _ in where:
        pid = launch.stopped(victim, generation)
        moment = time.time()
        taken = next_step(launch, generation + 1, moment)
        send_if_there(pid, signal.SIGCONT)  # it was killed as the culprit
        spawned = generations_of(launch)
        kept = [rank for rank, before in enumerate(spawned[-2])
                if spawned[-1][rank] == before or rank != victim and too_slow(launch, before)]
        check(kept == [rank for rank in range(RANKS) if rank != victim],
              f"rank {victim} was stopped; kept {kept}\n{launch.log()}")
        print(f"       rank {victim} stopped in {phase}: next step after {taken:.2f} s", flush=True)
    reasons = [event["reason"] for event in launch.events("failure_detected")]
    check(all(reason.startswith("stopped (SIGSTOP), no progress") for reason in reasons), reasons)
    launch.expect(0)
    check_same(reference, whole_curve(launch.folder, STEPS), "stopped")


def shrinks(test, reference):
    launch = Launch(test, "shrinks", str(RANKS), KEYS | {"launcher.on_worker_loss": "shrink",
                                                            "debug.stop_at": "1:0:step:7"})
    send(launch.stopped(0), signal.SIGKILL)
    launch.expect(0)
    first, second = generations_of(launch)
    check(all(now == before or too_slow(launch, before)
              for now, before in zip(second, first[1:], strict=True)),
          f"{first} -> {second}: the survivors have other processes\n{launch.log()}")
    check_same(reference, whole_curve(launch.folder, STEPS), "shrinks")


with Test("survivors") as test:
    with test.case("the uninterrupted run"):
        reference = whole_curve(test.train("reference", RANKS, KEYS), STEPS)
    for case in (killed_in_turn, stopped, shrinks):
        with test.case(case.__name__.replace("_", " ")):
            case(test, reference)
