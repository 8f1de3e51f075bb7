"""TensorBoard's own reader reads what TensorboardWriter wrote, even where a kill cut a record.

  tensorboard_test.py WRITER   (the program write_tensorboard_events)
"""
import pathlib
import struct
import subprocess
import sys
import tempfile
import time

from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.backend.event_processing.event_file_loader import EventFileLoader


def as_float32(value):
    return struct.unpack("<f", struct.pack("<f", value))[0]


def check(folder, files, start, end):
    """`start` and `end`: when the writer was started, and when it had ended."""
    first = list(EventFileLoader(files[0]).Load())
    assert first[0].file_version == "brain.Event:2", first[0]
    assert len(first) == 101, len(first)
    times = [start, *(event.wall_time for event in first), end]
    assert times == sorted(times), times
    accumulator = EventAccumulator(folder)  # joins the files of both processes
    accumulator.Reload()
    tags = sorted(accumulator.Tags()["scalars"])
    assert tags == ["loss_metrics/global_avg_loss", "lr"], tags
    for tag, value_at in (("loss_metrics/global_avg_loss", lambda step: 4.0 / step),
                          ("lr", lambda step: step * 1e-4)):
        last = {event.step: event.value for event in accumulator.Scalars(tag)}
        assert sorted(last) == list(range(1, 121)), sorted(last)
        for step, value in last.items():
            assert value == as_float32(value_at(step)), (tag, step, value)


def check_cut(file):
    raw = pathlib.Path(file).read_bytes()
    pathlib.Path(file).write_bytes(raw[:-7])
    events = list(EventFileLoader(file).Load())
    assert [event.step for event in events[1:]] == list(range(91, 120)), events[-1]


def main(writer):
    with tempfile.TemporaryDirectory() as folder:
        start = time.time()
        files = subprocess.run([writer, folder], check=True, capture_output=True,
                               text=True).stdout.split()
        assert len(files) == 2, files
        check(folder, files, start, time.time())
        check_cut(files[1])
    print("TensorBoard reads every event")


main(sys.argv[1])
