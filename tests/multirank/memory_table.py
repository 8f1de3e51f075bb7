"""Parameters, gradients and optimizer state of the linear demonstration: full_shard keeps about a
quarter of what ddp keeps, at each stage that is logged."""
import json
import subprocess
import sys

from lockstep_run import BIN_DIR, SOURCE_DIR, Test, check

RANKS = 4
FIXED = 0.02  # what does not shrink: padding of tiles, the batch, norms


def table(test, *flags):
    done = subprocess.run([sys.executable, SOURCE_DIR / "bench" / "memory_table.py", "--bin",
                           BIN_DIR, "--tokens", test.tokens(), "--ranks", str(RANKS), *flags],
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
    for stage in (made, "after warmup", "after checkpoint"):
        ratio = sharded[stage]["allocated"] / ddp[stage]["allocated"]
        check(1 / RANKS <= ratio < 1 / RANKS + FIXED, stage, ratio)


with Test("memory_table") as test:
    with test.case("a quarter"):
        a_quarter(test)
