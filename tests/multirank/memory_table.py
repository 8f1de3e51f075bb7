"""Parameters, gradients and optimizer state of the linear demonstration: full_shard keeps about a
quarter of what ddp keeps."""
import json
import subprocess
import sys

from lockstep_run import BIN_DIR, SOURCE_DIR, Test, check

RANKS = 4
# A rank's buffers of a unit's size do not shrink, nor do its partial sums of the step's slots:
# under ddp as well a rank adds up its own tiles alone.
STATE_RATIO, PEAK_RATIO = 0.27, 0.40


def table(test, *flags):
    done = subprocess.run([sys.executable, SOURCE_DIR / "bench" / "memory_table.py", "--bin",
                           BIN_DIR, "--tokens", test.tokens(), "--ranks", str(RANKS), *flags,
                           "--dim", "256", "--layers", "96"],
                          env=test.environment, capture_output=True, text=True, timeout=100,
                          check=False)
    check(done.returncode == 0, done.stdout, done.stderr)
    return done.stdout


def a_quarter(test):
    results = json.loads(table(test, "--json"))
    print(f"       {results}", flush=True)
    ddp, sharded = results["ddp"]["stages"], results["full_shard"]["stages"]
    parameters = results["ddp"]["parameters"]
    made = "after model creation"
    # Master weights and two moments, 4 bytes each.
    check(abs(ddp[made]["allocated"] / parameters - 12) < 0.3, ddp[made], parameters)
    for stage, what, limit in ((made, "allocated", STATE_RATIO),
                               ("after warmup", "peak", PEAK_RATIO),
                               ("after checkpoint", "peak", PEAK_RATIO)):
        ratio = sharded[stage][what] / ddp[stage][what]
        check(1 / RANKS <= ratio < limit, stage, what, ratio)


with Test("memory_table") as test:
    with test.case("a quarter"):
        a_quarter(test)
