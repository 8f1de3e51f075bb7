"""Chrome traces of a run: whole, nested, and adding up to what metrics.json says of the phases."""
import json

from lockstep_run import SMALL, Test, check, curve, check_same

STEPS = 6
KEYS = SMALL | {"training.steps": STEPS, "checkpoint.interval": 3, "validation.freq": 3,
                "validation.slots": 2}
TRACED = KEYS | {"profiling.enable_profiling": "true", "profiling.profile_freq": 1,
                 "audit.interval": 3}
AUDITED = (1, 3, 6)
# Categories of spans, and their names in metrics.json.
PHASES = {"data wait": "data_wait", "gather": "gather_wait", "forward": "forward",
          "backward": "backward", "exchange": "exchange_wait", "share losses": "share_wait",
          "fold": "fold_and_norm", "checkpoint stall": "checkpoint_stall", "update": "update",
          "audit": "audit", "validation": "validation", "checkpoint begin": "checkpoint_begin"}
UNITS = 4  # embedding, two blocks, head
EXACT_US = 0.01  # timestamps are whole nanoseconds


def spans(folder, step, rank):
    path = folder / "profile_traces" / f"iteration_{step}" / f"rank{rank}_trace.json"
    events = json.loads(path.read_text())["traceEvents"]
    check(events[0]["args"]["name"] == f"rank {rank}", events[0])
    for event in events[1:]:
        check(event["ph"] == "X" and event["pid"] == rank and event["dur"] >= 0, event)
    return events[1:]


def check_nesting(found):
    """One step holds all; validation gathers inside itself; nothing else overlaps. Ordered."""
    whole, = (span for span in found if span["cat"] == "step")
    inner = sorted((span for span in found if span is not whole), key=lambda span: span["ts"])
    for span in inner:
        check(span["ts"] >= whole["ts"] - EXACT_US and
              span["ts"] + span["dur"] <= whole["ts"] + whole["dur"] + EXACT_US, span, whole)
    for before, after in zip(inner, inner[1:]):
        check(before["ts"] + before["dur"] <= after["ts"] + EXACT_US, before, after)
    check(sum(span["dur"] for span in inner) <= whole["dur"] + EXACT_US, whole)


def check_phases(found, world_size):
    def names(category):
        return [span["name"] for span in found if span["cat"] == category]
    rounds = KEYS["training.slots"] // world_size
    check(len(names("forward")) == rounds * (UNITS - 1), names("forward"))
    check(len(names("backward")) == rounds * UNITS, names("backward"))
    check(len(set(names("backward"))) == UNITS, names("backward"))
    check(len(names("data wait")) == rounds, names("data wait"))
    for once in ("share losses", "fold", "checkpoint stall", "update", "step"):
        check(len(names(once)) == 1, once, names(once))
    check(set(span["cat"] for span in found) <= PHASES.keys() | {"step"}, names)


def check_audit(names, step, world_size):
    """One of the step; a note of the state at the end of the step before; what was gathered."""
    check(names.count("audit") == (step in AUDITED), step, names)
    check(names.count("audit note") == (step + 1 in AUDITED), step, names)
    units = set(names) - {"audit", "audit note"}
    check(len(units) == (UNITS if step in AUDITED and world_size > 1 else 0), step, names)


def traced(test, world_size):
    run = test.ranks(test.folder / f"traced_{world_size}", world_size, TRACED)
    run.expect(0)
    folder = test.folder / f"traced_{world_size}"
    sums = dict.fromkeys(PHASES, 0)
    for step in range(1, STEPS + 1):
        for rank in range(world_size):
            found = spans(folder, step, rank)
            check_nesting(found)
            check_phases(found, world_size)
            check_audit([span["name"] for span in found if span["cat"] == "audit"], step,
                        world_size)
            for span in found:
                if rank == 0 and span["cat"] in sums:
                    sums[span["cat"]] += span["dur"] * 1e-6
    means = json.loads((folder / "metrics.json").read_text())["phases_s_per_step"]
    for category, name in PHASES.items():
        check(abs(sums[category] / STEPS - means[name]) < 1e-6, category, sums[category], means)
    check(means.keys() == set(PHASES.values()) | {"other"}, means)
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    step_s = sum(line["step_time_s"] for line in lines) / STEPS
    within = sum(s for name, s in means.items() if name not in ("validation", "checkpoint_begin"))
    check(abs(step_s - within) < 1e-6 and means["other"] >= 0, step_s, within, means)
    for name in lines[0]["phases_s"]:  # of each step, what the means are of
        logged = sum(line["phases_s"][name] for line in lines) / STEPS
        check(abs(logged - means[name]) < 1e-6, name, logged, means)
    for line in lines:
        check(abs(sum(line["phases_s"].values()) - line["step_time_s"]) < 1e-6, line)
        check(line["max_memory_bytes"] > 0, line)
    check("phase              s/step   share" in run.log() and "\nall " in run.log(), run.log())
    return curve(folder)


def off(test, reference):
    run = test.ranks(test.folder / "off", 2, KEYS)
    run.expect(0)
    check(not (test.folder / "off" / "profile_traces").exists(), "traces though profiling is off")
    check("s/step   share" not in run.log(), run.log())
    check_same(reference, curve(test.folder / "off"), "without profiling")


def some_steps(test):
    """A full disk under the traces, or anything else wrong there, never ends the run."""
    folder = test.train("some", 1, TRACED | {"profiling.profile_freq": 4,
                                             "profiling.save_traces_folder": "elsewhere"})
    check([path.name for path in (folder / "elsewhere").iterdir()] == ["iteration_4"], folder)
    (test.folder / "blocked").mkdir()
    (test.folder / "blocked" / "profile_traces").write_text("a file where the folder would be")
    run = test.ranks(test.folder / "blocked", 1, TRACED)
    run.expect(0)
    check("cannot write a trace" in run.log(), run.log())


with Test("trace") as test:
    with test.case("one rank"):
        reference = traced(test, 1)
    with test.case("two ranks"):
        check_same(reference, traced(test, 2), "two ranks")
    with test.case("off"):
        off(test, reference)
    with test.case("some steps, elsewhere"):
        some_steps(test)
