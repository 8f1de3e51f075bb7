"""Each fuzzer with one fresh seed after the other, for so many minutes of processor time:
fuzz_for.py BIN_FOLDER MINUTES [FIRST_SEED]. Says how often each ran; ends with 1 at a finding."""
import os
import pathlib
import resource
import subprocess
import sys

ROUNDS = 2000  # of the network's fuzzer, with each seed


def cpu_seconds():
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def fuzzers(binaries):
    """(name, command) of each."""
    yield "launcher_net_fuzz", [binaries / "launcher_net_fuzz", str(ROUNDS)]
    tests = subprocess.run([binaries / "data_test", "--gtest_list_tests", "--gtest_filter=*Fuzz*"],
                           capture_output=True, text=True, check=True).stdout
    suites = [line.strip() for line in tests.splitlines() if line.endswith(".")]
    for suite in suites:
        yield suite[:-1], [binaries / "data_test", f"--gtest_filter={suite}*"]


def fuzz(name, command, seconds, seed):
    runs, until = 0, cpu_seconds() + seconds
    while cpu_seconds() < until:
        done = subprocess.run(command, env=os.environ | {"LOCKSTEP_SEED": str(seed + runs)},
                              capture_output=True, text=True, check=False)
        if done.returncode != 0:
            print(f"{name}: FAILED with LOCKSTEP_SEED={seed + runs}\n{done.stdout}{done.stderr}")
            return False
        runs += 1
    print(f"{name}: {runs} seeds from {seed} on, {seconds / 60:g} minutes", flush=True)
    return True


found = [fuzz(name, command, 60 * float(sys.argv[2]), int((sys.argv[3:] or ["1000"])[0]))
         for name, command in fuzzers(pathlib.Path(sys.argv[1]))]
sys.exit(0 if all(found) else 1)
