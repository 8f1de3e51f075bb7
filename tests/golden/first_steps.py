#!/usr/bin/env python3
"""The first steps of two golden runs, where a step takes seconds: on an emulated machine
(tools/check_aarch64). One rank and two must give the same bits, and the losses must lie near those
that losses/ records of other machines.
"""
from losses import (BASE, BF16, FP32, TOLERANCES, Test, all_records, check, check_same,
                    identity_of, recorded_form, reference_for, whole_curve)

STEPS, TIMEOUT_S = 2, 1200


def trained(test, name, world_size, keys):
    folder = test.folder / f"{name.replace(' ', '_')}_{world_size}"
    test.ranks(folder, world_size, keys | {"training.steps": STEPS}).expect(0, TIMEOUT_S)
    return folder


def near(curve, recorded, tolerance):
    """Each loss and the recorded one, which it must be near."""
    for step, line in enumerate(recorded[:STEPS], 1):
        loss, reference = float.fromhex(curve[step][0]), float.fromhex(line.split()[0])
        print(f"       step {step}: loss {loss:.9f}, recorded was {reference:.9f}")
        check(abs(loss - reference) <= tolerance * abs(reference), "not near")


with Test("first_steps") as test:
    for name, keys in (("llama fp32", BASE | FP32), ("llama bf16", BASE | BF16)):
        with test.case(name):
            folder = trained(test, name, 1, keys)
            curve = whole_curve(folder, STEPS)
            check_same(curve, whole_curve(trained(test, name, 2, keys), STEPS), "W = 1 and 2")
            ours = recorded_form({name: curve}, {name: folder})
            reference, _ = reference_for(ours, all_records())
            print(f"       {identity_of(ours)}; recorded: {identity_of(reference)}")
            case = reference["cases"][name]
            check(case["data"] == ours["cases"][name]["data"], "recorded with other data")
            near(curve, case["curve"], TOLERANCES[name.split()[1]])
