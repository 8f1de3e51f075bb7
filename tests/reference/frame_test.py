#!/usr/bin/env python3
"""lockstep_trainer.Run.frame as a DataFrame of pandas."""
import json
import pathlib
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "packaging/wheel"))
from lockstep_trainer import open_run  # noqa: E402

with tempfile.TemporaryDirectory() as folder:
    path = pathlib.Path(folder, "metrics.jsonl")
    records = [{"step": step, "loss": 8 / step, "loss_hex": (8 / step).hex(), "tokens": 64,
                "phases_s": {"forward": 0.5}, "digests": {"weights": ["00", "11"]}}
               for step in (1, 2, 3, 2, 3, 4)]
    records[1]["validation_loss"] = records[4]["validation_loss"] = 5.0
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    frame = open_run(folder).frame()
    assert frame.index.name == "step" and list(frame.index) == [1, 2, 3, 4], frame
    assert list(frame["loss"]) == [8, 4, 8 / 3, 2], frame
    assert list(frame["validation_loss"].isna()) == [True, True, False, True], frame
    assert str(frame["tokens"].dtype) == "int64" and frame["phases_s.forward"].sum() == 2, frame
    assert frame["digests.weights"][4] == ["00", "11"], frame
    path.unlink()
    pathlib.Path(folder, "run_args.json").write_text("{}")
    empty = open_run(folder).frame()
    assert len(empty) == 0 and empty.index.name == "step" and "loss" in empty, empty
