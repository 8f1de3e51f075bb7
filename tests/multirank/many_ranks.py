"""As many real ranks as this machine's memory holds, 64 at least, of a model of 1 M parameters:
they start, save, lose an eighth of their processes at once, and three quarters of them go on, with
the losses of one rank. It prints what a rank takes: memory, descriptors, threads."""
import os
import pathlib
import signal
import statistics
import time

from launched import Launch, next_step
from lockstep_run import TINY, Test, check, check_same, send_if_there, whole_curve

FEW, MOST = 64, 256
BYTES_A_RANK = 130 << 20  # what a rank of this model adds to the memory in use, and room for more
STEPS, SAVED, STOPPED_RANK = 6, 3, 5
KEYS = TINY | {"model.dim": 128, "model.n_layers": 4, "model.ffn_dim": 352,
               "training.steps": STEPS, "training.local_batch_size": 1,
               "checkpoint.interval": SAVED, "checkpoint.when_busy": "wait"}
START_S = 600  # 256 processes load LibTorch on two cores


def available_bytes():
    lines = pathlib.Path("/proc/meminfo").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith("MemAvailable"))


def sizes():
    fits = available_bytes() // BYTES_A_RANK // 8 * 8
    check(fits >= FEW, f"{FEW} ranks take {FEW * BYTES_A_RANK >> 20} MiB, and there are "
                       f"{available_bytes() >> 20}")
    return sorted({FEW, min(MOST, fits)})


def taken(pid):
    """(anonymous MiB, MiB of memory that ranks share, descriptors, threads) of a process"""
    folder = pathlib.Path(f"/proc/{pid}")
    status = dict(line.split(":", 1) for line in (folder / "status").read_text().splitlines())
    mib = [int(status[key].split()[0]) >> 10 for key in ("RssAnon", "RssShmem")]
    return *mib, len(os.listdir(folder / "fd")), int(status["Threads"])


def generations(test, ranks):
    keys = KEYS | {"training.slots": ranks}
    reference = whole_curve(test.train(f"one_{ranks}", 1, keys), STEPS)
    left = ranks * 3 // 4
    began = time.time()
    launch = Launch(test, f"ranks_{ranks}", f"{ranks},{left}",
                    keys | {"debug.stop_at": f"1:{STOPPED_RANK}:step:{SAVED + 2}"})
    stopped = launch.stopped(STOPPED_RANK, timeout_s=START_S)
    started = launch.events("first_step")[0]["t"] - began
    pids = launch.events("spawned")[-1]["pids"]
    rows = [taken(pid) for pid in pids]
    medians = [statistics.median(column) for column in zip(*rows)]
    moment = time.time()
    for pid in [stopped, *pids[-(ranks // 8) + 1:]]:
        send_if_there(pid, signal.SIGKILL)  # the agent ends what stands still for 5 s
    again = next_step(launch, 2, moment)
    launch.expect(0, START_S)
    resumed = launch.events("spawned")[-1]["pids"]
    check(len(resumed) == left, len(resumed), left)
    check_same(reference, whole_curve(launch.folder, STEPS), f"{ranks} ranks, then {left}")
    own, shared, descriptors, threads = (f"{value:.0f}" for value in medians)
    print(f"       {ranks} ranks: {started:.1f} s to the first step; a rank has (medians) {own} "
          f"MiB of its own,\n       {shared} MiB that ranks share, {descriptors} descriptors, "
          f"{threads} threads; {ranks // 8} are killed,\n       a step of {left} ranks after "
          f"{again:.1f} s",
          flush=True)


with Test("many_ranks") as test:
    for size in sizes():
        with test.case(f"{size} ranks, an eighth of them killed, three quarters go on"):
            generations(test, size)
