"""tools/first_light to its end on a CPU. Of the programs that it is given, `doctor` hangs, gpu_test
fails and crashes, and memcheck finds errors: each is in the summary, and all later steps run."""
import json
import os
import pathlib
import re
import subprocess
import sys

sys.path.append(str(pathlib.Path(__file__).resolve().parents[2] / "bench" / "gpu"))
import device_times  # noqa: E402
from lockstep_run import BIN_DIR, SOURCE_DIR, Test, check, state_of, tail, wait_until

TOOL = SOURCE_DIR / "tools" / "first_light"
LIMIT_S = 1200
DOCTOR_S = 3  # it hangs; the others have as long as a busy machine may need
STEP_S = 600

# It hangs with a child in a session of its own; {pids} gets both.
LOCKSTEP = """#!/bin/sh
if [ "$1" = doctor ]; then
  setsid sleep 1000 &
  echo $$ $! > "{pids}"
  wait
fi
exec "{bin}/lockstep" "$@"
"""
GPU_TEST = """#!/bin/sh
run() { echo "[ RUN      ] Fake.$1"; }
ok() { run "$1"; echo "[       OK ] Fake.$1 (1 ms)"; }
failed() { run "$1"; echo "[  FAILED  ] Fake.$1, where GetParam() = 1 (1 ms)"; }
crashes() { run "$1"; kill -SEGV $$; }
case "$*" in
  *list_tests*) printf 'Fake.\\n  Passes\\n  Fails  # GetParam() = 1\\n  Crashes\\n  Later\\n' ;;
  *=Fake.Fails) failed Fails; exit 1 ;;
  *=Fake.Later) ok Later ;;
  *=Fake.Crashes) crashes Crashes ;;
  *) ok Passes; failed Fails; crashes Crashes ;;
esac
"""
SANITIZER = """#!/bin/sh
printf '========= COMPUTE-SANITIZER\\n[ RUN      ] Fake.Passes\\n'
if [ "$2" = memcheck ]; then printf '========= Invalid __global__ write of size 4 bytes\\n'; fi
printf '[       OK ] Fake.Passes (1 ms)\\n'
case "$2" in
  memcheck) printf '========= ERROR SUMMARY: 2 errors\\n'; exit 9 ;;
  racecheck) printf '========= RACECHECK SUMMARY: 0 hazards displayed (0 errors, 0 warnings)\\n' ;;
  synccheck) printf '========= ERROR SUMMARY: 0 errors\\n' ;;
esac
"""
PYTORCH = ("pytorch-0.5b", "pytorch-8b-8l", "pytorch-1.5b", "pytorch-3b")
SPEED = ("speed-0.5b", "speed-8b-8l", "speed-1.5b", "speed-3b", "speed-7b", "speed-8b")
KERNELS = ("kernels-0.5b", "kernels-8b-8l")
FAILED = ("doctor", "gpu-tests", "memcheck")


def programs(test):
    """A folder with these programs, in place of some of the real ones."""
    folder = test.folder / "bin"
    folder.mkdir()
    (folder / "lockstep-worker").symlink_to(BIN_DIR / "lockstep-worker")
    for name, text in (("lockstep", LOCKSTEP.format(pids=test.folder / "pids", bin=BIN_DIR)),
                       ("gpu_test", GPU_TEST), ("compute-sanitizer", SANITIZER)):
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)
    return folder


def first_light(test, out, *words, status=0):
    environment = test.environment | {"PATH": f"{test.folder / 'bin'}:{os.environ['PATH']}"}
    done = subprocess.run([sys.executable, TOOL, "--device", "cpu", "--bin", test.folder / "bin",
                           "--out", out, "--python", test.folder / "no_python", *words],
                          env=environment, text=True, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, timeout=LIMIT_S, check=False)
    check(done.returncode == status, f"status {done.returncode}, not {status}\n", done.stdout)
    return done.stdout


def ran(printed):
    """Names of the steps that a command says it has run."""
    return re.findall(r"^(?:ok|failed|not run) +(\S+) [\d.]+ s", printed, re.MULTILINE)


def tables(page):
    """{heading: (columns, [row])} of the tables of a summary, in order."""
    found, heading = {}, ""
    for line in page.splitlines():
        if line.startswith("#"):
            heading = line.lstrip("# ")
        elif line.startswith("| "):
            cells = [cell.strip() for cell in line.strip("|").split("|")]
            if heading not in found:
                found[heading] = (cells, [])
            elif set(cells) != {"---"}:
                check(len(cells) == len(found[heading][0]), f"{heading}: {line}")
                found[heading][1].append(dict(zip(found[heading][0], cells)))
    return found


def results(steps):
    check(steps["doctor"]["result"] == "failed" and "hung" in steps["doctor"]["why"][0],
          steps["doctor"])
    why = " ".join(steps["gpu-tests"]["why"])
    for said in ("Fake.Fails: failed with the others, failed alone",
                 "Fake.Crashes: began with the others, began alone, crashed with SIGSEGV"):
        check(said in why, why)
    check("Fake.Passes" not in why and "Fake.Later" not in why, why)
    check("Invalid __global__ write" in steps["memcheck"]["why"][0], steps["memcheck"])
    for name in PYTORCH:
        check(steps[name]["result"] == "not run" and "torch" in steps[name]["why"][0], steps[name])
    for name in KERNELS:
        check(steps[name]["result"] == "not run" and "GPU" in steps[name]["why"][0], steps[name])
    for name, each in steps.items():
        if name not in (*FAILED, *PYTORCH, *KERNELS):
            check(each["result"] == "ok" and not each["why"], name, each)


def figures(steps):
    check(len(steps["bits"]["rows"]) == 12, steps["bits"])
    check({row["same_bits"] for row in steps["bits"]["rows"]} == {"yes"}, steps["bits"])
    for name in SPEED:
        for row in steps[name]["rows"]:
            check(row["tokens_per_s"] > 0 and row["step_ms"] > 0 and row["planned_mib"] > 0, row)
            check("forward" in row["phases_ms"], row)
        check(steps[name]["rows"], f"{name} has no figures")
    check(len(steps["memory"]["rows"]) == 4, steps["memory"])
    check(all(abs(row["deviation_pct"]) < 10 for row in steps["memory"]["rows"]), steps["memory"])
    check(steps["save"]["rows"][0]["stall_ms_max"] > 0, steps["save"])
    check(steps["recovery"]["rows"][0]["next_step_s"] > 0, steps["recovery"])


def page_says(page, steps):
    """The page shows what failed first, then each figure as it was measured, then the machine."""
    found = tables(page)
    headings = list(found)
    check(headings[:3] == ["Failed", "Not run here", "Ok"] and headings[-1] == "Machine", headings)
    check([row["step"] for row in found["Failed"][1]] == list(FAILED), found["Failed"])
    for name, each in steps.items():
        shown = found.get(name, ((), ()))[1]
        check(len(shown) == len(each["rows"]), f"{name}: {shown}")
        for row, cells in zip(each["rows"], shown):
            for key, value in row.items():
                if not isinstance(value, str):
                    check(float(cells[key]) == value, f"{name}: {key} {cells[key]}, not {value}")
    facts = {row["what"]: row["value"] for row in found["Machine"][1]}
    check({"device", "driver", "Python"} <= facts.keys(), facts)


def whole(test, out):
    listed = [line.split()[0] for line in first_light(test, out, "--list").splitlines()]
    limits = {name: STEP_S for name in listed} | {"doctor": DOCTOR_S}
    printed = first_light(test, out, *[word for name, seconds in limits.items()
                                       for word in ("--limit", f"{name}={seconds}")], status=1)
    print(tail(printed, 25), flush=True)
    steps = json.loads((out / "summary.json").read_text())["steps"]
    check(list(steps) == listed == ran(printed), listed, list(steps))
    results(steps)
    figures(steps)
    page_says((out / "summary.md").read_text(), steps)
    pids = (test.folder / "pids").read_text().split()
    check(len(pids) == 2 and not any(map(state_of, pids)), f"{pids}: the hung step's live on")


def goes_on(test, out):
    """A command takes up what has no result; --only and --from run theirs again."""
    check(ran(first_light(test, out)) == [], "it ran again what has a result")
    (out / "programs" / "result.json").unlink()
    check("now, 1 of" in first_light(test, out, "--minutes", "0"), "it had no time")
    check(ran(first_light(test, out)) == ["programs"], "it did not go on")
    check(ran(first_light(test, out, "--from", SPEED[-1])) == [SPEED[-1]], "--from")
    check(ran(first_light(test, out, "--only", "memcheck", status=1)) == ["memcheck"], "--only")
    first_light(test, out, "--only", "nonsense", status=2)
    check("tools/build_cuda" in first_light(test, out, "--bin", test.folder, status=2), "no word")


def stopped(test):
    """SIGTERM in a step: what the step has started ends, and the step has no result."""
    out, pids = test.folder / "stopped", test.folder / "pids"
    pids.unlink()
    process = test.start([sys.executable, TOOL, "--device", "cpu", "--bin", test.folder / "bin",
                          "--out", out, "--only", "doctor"], test.folder / "stopped.log")
    started = wait_until(lambda: pids.exists() and pids.read_text().split(), "doctor")
    process.terminate()
    check(process.wait(60) == 1, (test.folder / "stopped.log").read_text())
    check(len(started) == 2 and not any(map(state_of, started)), f"{started} live on")
    check(not (out / "doctor" / "result.json").exists(), "a result of a step that did not end")


def packed(test):
    """What tools/build_cuda packs has what its programs need, but torch's libraries and libc's."""
    to = test.folder / "packed"
    said = subprocess.run([SOURCE_DIR / "tools" / "pack_first_light", BIN_DIR, to], text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
    check(said.returncode == 0 and "MiB" in said.stdout, said)
    environment = test.environment | {"LD_LIBRARY_PATH": str(to / "lib")}
    shown = subprocess.run(["ldd", to / "bin" / "lockstep"], env=environment, text=True,
                           capture_output=True, check=True).stdout
    found = dict(re.findall(r"(\S+) => (\S+)", shown))
    check("libsodium.so.23" in found or len(found) > 8, shown)
    for name, path in found.items():
        of_system = re.match(r"(libc|libm|libstdc\+\+|libgcc_s|libpthread|libdl|librt)\.so", name)
        ours = os.path.normpath(path).startswith(str(to / "lib"))  # "bin/../lib", by its RPATH
        check(ours != bool(of_system), f"{name} is {path}\n{shown}")
    done = subprocess.run([sys.executable, to / "tools" / "first_light", "--device", "cpu",
                           "--only", "programs,recovery", "--out", to / "out"], text=True,
                          env=test.environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          timeout=LIMIT_S, check=False)
    check(done.returncode == 0 and ran(done.stdout) == ["programs", "recovery"], done.stdout)


def traced(test):
    """Two steps of a trace, and a third cut off: what the second one was."""
    line = "{}\t{}\t7\t0\t{}\n".format
    ours = "void lockstep::core::cuda::for_each_kernel<lockstep::core::{}<OnCuda>>(long)".format
    text = ""
    for start in (0, 1000000, 2000000):
        for i in range(10):
            text += line(start + 100000 + 30000 * i, start + 130000 + 30000 * i, "void mm<1>(int)")
        text += line(start + 300000, start + 500000, ours("swiglu_forward"))  # both at once
        text += line(start + 600000, start + 700000, ours("adamw_update"))
    (test.folder / "trace").write_text(text[:text.rfind("\n", 0, -10) + 20])
    step_ms, busy_ms, rows = device_times.of_step(test.folder / "trace")
    check((step_ms, busy_ms) == (0.6, 0.5), step_ms, busy_ms)
    check(rows == [("mm<1>(int)", 0.3, 10), ("swiglu_forward", 0.2, 1),
                   ("adamw_update", 0.1, 1)], rows)


with Test("first_light") as test:
    with test.case("the kernels of a trace"):
        traced(test)
    programs(test)
    out = test.folder / "out"
    with test.case("every step runs or says why it does not"):
        whole(test, out)
    with test.case("a command goes on where the one before it ended"):
        goes_on(test, out)
    with test.case("stopped in a step"):
        stopped(test)
    with test.case("the folder that is taken along is whole"):
        packed(test)
