"""Every step logs digests of the weights and the summed gradient of each unit, the same for every
world size, strategy and wrap policy; `lockstep replay` computes steps again, and names the first
step and the unit where a bit was turned over in the production path."""
import pathlib
import re
import signal

from lockstep_run import (RUN_TIMEOUT_S, SOAK, TINY, Test, check, metrics, program, send, tail,
                          wait_until)

STEPS, SAVE, FLIP_STEP = 12, 5, 8
KEYS = TINY | {"training.steps": STEPS, "checkpoint.interval": SAVE, "checkpoint.codec": "none",
               "checkpoint.keep_latest_k": 0}
ACTIVATION, INPUT_GRADIENT, GRADIENT_SUM, WEIGHT, MOMENT, SECOND_MOMENT = range(6)
KINDS = ("activation", "input gradient", "gradient sum", "weight", "moment", "second moment")
# By kind of which one unit is named: how many steps behind the flip the first digest differs, where
# it is not rounded away at first, and of what.
EXPECTED = {GRADIENT_SUM: (0, "gradients"), WEIGHT: (1, "weights"), MOMENT: (2, "weights"),
            SECOND_MOMENT: (2, "weights")}
HIGHEST_MANTISSA_BIT = 22
FOR_GOOD = 1  # core/audit/bit_flip.h: FlipWhen
SO_FAR = "are the same; continuing with the steps that the run has made since"
UNITS = TINY["model.n_layers"] + 2
SPREADS = (
    ("full_shard 3", 3, {}),
    ("full_shard 2", 2, {}),
    ("ddp", 3, {"parallelism.strategy": "ddp"}),
    ("grad_op", 2, {"parallelism.strategy": "shard_grad_op"}),
    ("hybrid", 4, {"parallelism.strategy": "hybrid", "parallelism.data_parallel_shard_degree": 2}),
    ("one unit", 2, {"parallelism.wrap_policy": "none"}),
    ("offload", 2, {"training.enable_cpu_offload": "true"}),
    ("threads", 1, {"training.threads": 2}),
)


def digests(folder):
    """{step: the digests of its last line}"""
    return {line["step"]: line["digests"] for line in metrics(folder)}


def replay(test, folder, *words, status=0):
    return test.command("replay", folder, *words, status=status)


class Follower:
    """`lockstep replay FOLDER --from STEP --follow`, in the background."""

    def __init__(self, test, folder, step, *words):
        self.log = test.folder / f"{folder.name}_{step}.follower"
        command = [program("lockstep"), "replay", folder, "--from", step, "--follow", *words]
        self.process = test.start(list(map(str, command)), self.log)

    def said(self, words):
        wait_until(lambda: words in self.log.read_text() or self.process.poll() is not None,
                   f"a follower to say: {words}", RUN_TIMEOUT_S)
        check(self.process.poll() is None, tail(self.log.read_text(), 60))

    def waits(self):
        """Until signals are held and it sleeps between two looks at the log."""
        def holds():
            status = pathlib.Path(f"/proc/{self.process.pid}/status").read_text()
            blocked = int(re.search(r"SigBlk:\s*(\w+)", status).group(1), 16)
            return blocked >> (signal.SIGTERM - 1) & 1
        wait_until(holds, "a follower to hold signals", RUN_TIMEOUT_S)

    def ended(self, status):
        """What it printed, all of it; it must end with `status`."""
        check(self.process.wait(RUN_TIMEOUT_S) == status, tail(self.log.read_text(), 60))
        return self.log.read_text()


def first_named(printed):
    """(step, "weights" or "gradients", how many units) that a replay names."""
    found = re.search(r"step (\d+): the (weights|gradients) of (\d+) of (\d+) units", printed)
    check(found and int(found.group(4)) == UNITS, printed)
    return int(found.group(1)), found.group(2), int(found.group(3))


def flipped(test, kind, place, bit, step=FLIP_STEP):
    """A run of which a bit turned over in this step, and the unit that has it, or ""."""
    folder = test.folder / f"flip_{kind}_{place}_{bit}"
    test.environment["LOCKSTEP_FLIP_BIT"] = f"{step} 1 {kind} {place} {bit}"
    ranks = test.ranks(folder, 2, KEYS, worker="lockstep-flip-worker")
    ranks.expect(0)
    done = re.search(rf"flipped a bit of .*, step {step}(?:, of (\S+))?\n", ranks.all_logs())
    check(done, "no bit was flipped")
    return folder, done.group(1) or ""


def flip_is_named(test, kind, place, bit):
    folder, unit = flipped(test, kind, place, bit)
    printed = replay(test, folder, "--from", SAVE + 1, status=1)
    step, what, units = first_named(printed)
    check(f" units ({unit}" in printed, unit, printed)
    if kind in EXPECTED:
        delay, expected = EXPECTED[kind]
        check((step, what, units) == (FLIP_STEP + delay, expected, 1), step, what, units)
    else:
        check((step, what) == (FLIP_STEP, "gradients") and units >= 1, step, what, units)


def bits_of(folder):
    """{step: all that its last line says of bits}"""
    return {line["step"]: (line["loss_hex"], line["grad_norm_hex"], line["digests"])
            for line in metrics(folder)}


def slot_line(test, folder, slot, *words, status=0):
    """What `--slot` prints of the last step that is computed, and all that was printed."""
    printed = replay(test, folder, "--from", SAVE + 1, "--to", FLIP_STEP, "--slot", slot, *words,
                     status=status)
    lines = [line for line in printed.splitlines() if line.startswith(f"step {FLIP_STEP}, slot ")]
    check(len(lines) == 1, printed)
    return lines[0], printed


def slots_alone(test):
    folder = test.folder / "full_shard_3"
    slots = KEYS["training.slots"]
    with test.case("--slot: the losses of all slots add up to the one that the run logged"):
        lines = [slot_line(test, folder, slot)[0] for slot in range(slots)]
        for slot, line in enumerate(lines):
            check(f"slot {slot}, which rank {slot % 3} of 3 had: loss 0x" in line
                  and f" of {UNITS} units" in line, line)
        check(len({line.split("gradients ")[1] for line in lines}) == slots, lines)
        losses = [float.fromhex(re.search(r"loss (\S+),", line).group(1)) for line in lines]
        logged = next(line for line in metrics(folder) if line["step"] == FLIP_STEP)
        check(sum(losses) / logged["tokens"] == float.fromhex(logged["loss_hex"]), losses, logged)
    with test.case("--slot: the same line for 1, 2 and 3 processes, and in bfloat16"):
        for ranks in (2, 3):
            found, printed = slot_line(test, folder, 2, "--nproc-per-node", ranks)
            check(found == lines[2] and "the answers of this machine" not in printed, printed)
        found = {slot_line(test, test.folder / "bf16_3", 2, "--nproc-per-node", ranks)[0]
                 for ranks in (1, 3)}
        check(len(found) == 1 and lines[2] not in found, found)
    with test.case("--slot: a process that computes wrongly is named, and of two both are"):
        test.environment["LOCKSTEP_WORKER"] = program("lockstep-flip-worker")
        test.environment["LOCKSTEP_FLIP_BIT"] = (f"{FLIP_STEP} 1 {ACTIVATION} 77 "
                                                 f"{HIGHEST_MANTISSA_BIT} {FOR_GOOD}")
        found, printed = slot_line(test, folder, 2, "--nproc-per-node", 3, status=1)
        check(found == lines[2], found, lines[2])  # as most say
        check(f"\nstep {FLIP_STEP}: the answers of this machine differ, and rank 1 is wrong: slot "
              "2: rank 1: the loss, the gradients of " in printed, printed)
        _, printed = slot_line(test, folder, 2, "--nproc-per-node", 2, status=1)
        check("and nothing tells which of ranks 0, 1 is right: slot 2: " in printed, printed)
        del test.environment["LOCKSTEP_WORKER"], test.environment["LOCKSTEP_FLIP_BIT"]
    with test.case("--slot: a machine that always errs gives another line, and says nothing"):
        test.environment["LOCKSTEP_WORKER"] = program("lockstep-flip-worker")
        test.environment["LOCKSTEP_FLIP_BIT"] = (f"{FLIP_STEP} 0 {ACTIVATION} 77 "
                                                 f"{HIGHEST_MANTISSA_BIT} {FOR_GOOD}")
        found, printed = slot_line(test, folder, 2, status=1)
        check(found != lines[2] and "the answers of this machine" not in printed, printed)
        del test.environment["LOCKSTEP_WORKER"], test.environment["LOCKSTEP_FLIP_BIT"]
    with test.case("--slot: one that the step has not, and together with --follow"):
        printed = replay(test, folder, "--from", SAVE + 1, "--slot", slots, status=64)
        check(f"audit.slot = {slots} is not a slot: a step has the slots 0 to" in printed, printed)
        printed = replay(test, folder, "--from", SAVE + 1, "--slot", 1, "--follow", status=64)
        check("--follow excludes --slot" in printed, printed)


def random_flip(test, sound, kind):
    """One bit, at a random place of a random step. Where a line of the run differs from the sound
    run's, the replay must name that step, and the unit where one alone has the bit; the delay of
    that line. None where no line differs: then it must find nothing."""
    at = test.random.randrange(1, STEPS - 2)
    chosen = kind, test.random.randrange(1 << 40), test.random.randrange(HIGHEST_MANTISSA_BIT + 1)
    with test.case(f"a bit turns over: {KINDS[kind]}, step {at}, {chosen}"):
        folder, unit = flipped(test, *chosen, at)
        was = bits_of(folder)
        first = next((step for step in sorted(sound) if was[step] != sound[step]), None)
        printed = replay(test, folder, "--from", 1, status=0 if first is None else 1)
        if first is None:
            return None
        check(re.search(rf": step {first}(:| differs)", printed), first, printed)
        if kind in EXPECTED:
            _, what, units = first_named(printed)
            check((what, units) == (EXPECTED[kind][1], 1) and f" units ({unit})" in printed,
                  unit, printed)
        return first - at
    return None


def random_flips(test, sound, wanted):
    """As many that reach a digest, of all kinds in turn."""
    delays, lost = {kind: [] for kind in range(len(KINDS))}, [0] * len(KINDS)
    while sum(map(len, delays.values())) < wanted and not test.failures:
        kind = (sum(map(len, delays.values())) + sum(lost)) % len(KINDS)
        delay = random_flip(test, sound, kind)
        if delay is None:
            lost[kind] += 1
        else:
            delays[kind].append(delay)
    for kind, name in enumerate(KINDS):
        print(f"       {name}: {len(delays[kind])} named, "
              f"{sorted(set(delays[kind]))} steps behind; {lost[kind]} more changed no digest",
              flush=True)
    for kind, found in delays.items():
        soonest = EXPECTED.get(kind, (0,))[0]
        check(all(delay >= soonest for delay in found), KINDS[kind], found)


with Test("replay") as test:
    with test.case("a line a step has digests of each unit, one in each step at least differs"):
        reference = test.train("reference", 1, KEYS | {"parallelism.strategy": "single"})
        wanted = digests(reference)
        check(sorted(wanted) == list(range(1, STEPS + 1)), sorted(wanted))
        for step in range(2, STEPS + 1):
            for what in ("weights", "gradients"):
                now, before = wanted[step][what], wanted[step - 1][what]
                check(len(now) == UNITS and len(set(now)) == UNITS, now)
                check(all(a != b for a, b in zip(now, before)), step, what)
    for name, world_size, keys in SPREADS:
        with test.case(f"the same digests: {name}"):
            found = digests(test.train(name.replace(" ", "_"), world_size, KEYS | keys))
            check(found == wanted, {step: (found.get(step), wanted[step]) for step in wanted
                                    if found.get(step) != wanted[step]})
    with test.case("bfloat16: the same digests for 1 and 3 ranks"):
        keys = KEYS | {"training.mixed_precision_param": "bfloat16"}
        one, three = (digests(test.train(f"bf16_{ranks}", ranks, keys)) for ranks in (1, 3))
        check(one == three and one[STEPS] != wanted[STEPS], one[STEPS], three[STEPS])
    with test.case("a sound run: equal from a checkpoint and from the initial weights"):
        folder = test.folder / "full_shard_3"
        before = sorted(path for path in folder.rglob("*"))
        for words in (["--from", SAVE + 1], ["--from", 1, "--to", 4, "--nproc-per-node", 2]):
            printed = replay(test, folder, *words)
            check(f"so are the weights and gradients of {UNITS} units" in printed, printed)
        check(sorted(path for path in folder.rglob("*")) == before, "the run's folder has changed")
    with test.case("--out keeps a run that compare reads"):
        out = test.folder / "kept"
        replay(test, reference, "--from", SAVE + 1, "--to", STEPS - 1, "--out", out)
        printed = test.command("compare", reference, out, "--require-identical")
        check(f"{STEPS - 1 - SAVE}" in printed, printed)
        printed = replay(test, reference, "--from", 2, "--out", out, status=64)
        check("is already a run's folder" in printed, printed)
    with test.case("--follow: from before the first step, over a kill and other ranks, to the end"):
        folder, out = test.folder / "followed", test.folder / "follower"
        folder.mkdir()
        follower = Follower(test, folder, 2, "--out", out)
        half = test.ranks(folder, 2, KEYS, stop_at=f"1:step:{FLIP_STEP}")
        half.await_stop()
        follower.said(SO_FAR)
        half.kill()
        test.ranks(folder, 3, KEYS).expect(0)
        printed = follower.ended(0)
        check(f"steps 2 to {STEPS} of" in printed and f"of {UNITS} units" in printed, printed)
        kept = list((out / "checkpoints").glob("step_*"))
        check(len(kept) <= 2 and not any(path.is_symlink() for path in kept), kept)
        printed = replay(test, folder, "--from", STEPS + 1, "--follow", status=64)
        check("and the run has ended" in printed, printed)
    with test.case("--follow: Ctrl-C ends the wait for more steps, and says what was compared"):
        folder = test.folder / "given_up"
        test.killed_at(f"1:step:{FLIP_STEP}", folder, 2, KEYS)
        follower = Follower(test, folder, SAVE + 1)
        follower.said(SO_FAR)
        send(follower.process.pid, signal.SIGINT)
        printed = follower.ended(0)
        # Step 5 may not have been saved yet when the run was killed.
        check(re.search(rf"from (step_0+{SAVE}\S*|the initial weights) by 1 rank: every loss",
                        printed), printed)
        follower = Follower(test, folder, STEPS)
        follower.waits()
        send(follower.process.pid, signal.SIGTERM)
        check("stopped before a step was compared" in follower.ended(75), printed)
    with test.case("--follow: a bit that turns over in a run that still trains ends it"):
        folder = test.folder / "flipped_while_followed"
        test.environment["LOCKSTEP_FLIP_BIT"] = f"{FLIP_STEP} 1 {GRADIENT_SUM} 6 20"
        ranks = test.ranks(folder, 2, KEYS, stop_at=f"0:step:{FLIP_STEP + 2}",
                           worker="lockstep-flip-worker")
        ranks.await_stop()
        follower = Follower(test, folder, 1)
        step, what, units = first_named(follower.ended(1))
        check((step, what, units) == (FLIP_STEP, "gradients", 1), step, what, units)
        check(ranks.running(), "the run was over")
        ranks.kill()
    with test.case("steps that the run has not"):
        for words, said in ((["--from", STEPS + 1], "is after the last step"),
                            (["--from", 2, "--to", STEPS + 3], "has no line for step")):
            check(said in replay(test, reference, *words, status=64), words)
    for kind, place in ((GRADIENT_SUM, 5), (WEIGHT, 1234567), (MOMENT, 7654321),
                        (ACTIVATION, 100001), (INPUT_GRADIENT, 100002)):
        with test.case(f"a bit of a {KINDS[kind]} turns over"):
            flip_is_named(test, kind, place, HIGHEST_MANTISSA_BIT)
    slots_alone(test)
    random_flips(test, bits_of(reference), 100 if SOAK else 4)
