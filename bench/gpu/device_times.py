#!/usr/bin/env python3
"""Where the time of a GPU's step goes, from what device_trace.cc wrote.

  device_times.py TRACE [--top 40]

A step ends with the last kernel of an optimizer ("adam" in its name). Of the last whole step: its
length, how long the device was busy, and each kind of kernel: how often, milliseconds, percent.
Prints Markdown. Standard library only.
"""
import argparse
import collections
import pathlib
import re

OURS = re.compile(r"lockstep::core::(?:cuda::)?(?:\(anonymous namespace\)::)?(\w+)")
NOT_A_NAME = {"cuda", "OnCuda", "Bf16", "for_each_kernel"}
NAME_CHARACTERS = 90
OF_NEXT_STEP = 8  # kernels of others after one of the optimizer: it was the step's last one


def short(name):
    """A name that a table has room for."""
    ours = [each for each in dict.fromkeys(OURS.findall(name)) if each not in NOT_A_NAME]
    if ours:
        return ", ".join(ours[:2]) + (" bf16" if "Bf16" in name else "")
    plain = re.sub(r"^void |\(anonymous namespace\)::|at::native::", "", name)
    return plain[:NAME_CHARACTERS]


def records(path):
    """[(start, end, stream, bytes, name)] by start, in ns."""
    found = []
    for line in path.read_text().splitlines():
        parts = line.split("\t")
        if len(parts) == 5:  # the last one may be cut off
            found.append((*map(int, parts[:4]), parts[4]))
    return sorted(found)


def last_step(all_records):
    """Those after the last but one end of a step, up to the last one."""
    of_optimizer = ["adam" in record[4].lower() for record in all_records]
    ends = [i for i, mine in enumerate(of_optimizer)
            if mine and not any(of_optimizer[i + 1:i + 1 + OF_NEXT_STEP])]
    if len(ends) < 2:
        return all_records
    return all_records[ends[-2] + 1:ends[-1] + 1]


def busy_ns(step):
    total, until = 0, 0
    for start, end, *_ in step:
        total += max(0, end - max(start, until))
        until = max(until, end)
    return total


def of_step(path):
    """(its ms, ms that the device was busy, [(kind of kernel, ms, times), the longest first])"""
    step = last_step(records(path))
    length = max(record[1] for record in step) - step[0][0]
    times, counts = collections.Counter(), collections.Counter()
    for start, end, _, _, name in step:
        times[short(name)] += end - start
        counts[short(name)] += 1
    rows = [(name, round(spent / 1e6, 3), counts[name]) for name, spent in times.most_common()]
    return round(length / 1e6, 2), round(busy_ns(step) / 1e6, 2), rows


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("trace", type=pathlib.Path)
    parser.add_argument("--top", type=int, default=40, help="rows of the table")
    a = parser.parse_args()
    step_ms, busy_ms, rows = of_step(a.trace)
    print(f"step {step_ms} ms, device busy {busy_ms} ms, {sum(row[2] for row in rows)} launches\n\n"
          "| ms | % | times | what |\n| --- | --- | --- | --- |")
    for name, ms, count in rows[:a.top]:
        print(f"| {ms:.3f} | {100 * ms / step_ms:.1f} | {count} | {name} |")


if __name__ == "__main__":
    main()
