"""lockstep_trainer.Run on a folder as a run with a restart leaves it."""
import json
import math
import os
import subprocess
import sys
import unittest.mock

from package import LOCKSTEP, NAME, FolderTest, change_manifest, golden_copy, main
import numpy
from lockstep_trainer import LockstepError, MissingPackage, open_run

LOSSES = [5.5, 5.25, 5.1, 4.9, 4.7]  # of steps 1 to 5; 3 and 4 are computed twice


def record(step, generation, **more):
    loss = LOSSES[step - 1]
    # The decimal number is rounded here, so that it shows which of the two is read.
    return {"step": step, "loss": round(loss, 1), "loss_hex": loss.hex(), "grad_norm": None,
            "grad_norm_hex": "nan" if step == 5 else (step / 3).hex(), "lr": 1e-3, "tokens": 512,
            "world_size": 2, "generation": generation, "step_time_s": 0.5, "t": 1.7e9 + step,
            "phases_s": {"forward": 0.25 * step}, "digests": {"weights": ["00", f"{step:02x}"]},
            **more}


def make_run(folder):
    folder.mkdir()
    (folder / "run_args.json").write_text(json.dumps(
        {"config": {"training": {"steps": 9}, "checkpoint": {"folder": "saved"}},
         "parameters": 1234, "world_size": 2}))
    records = [record(1, 1), record(2, 1, validation_loss=5.0), record(3, 1, skipped="not finite"),
               record(4, 1), record(3, 2), record(4, 2, validation_loss=None), record(5, 2)]
    lines = "\n".join(map(json.dumps, records))
    (folder / "metrics.jsonl").write_text(lines + '\n{"step": 6, "loss": 4.')
    (folder / "events.jsonl").write_text('{"t": 1.5, "event": "generation_start"}\n'
                                         '{"t": 2.5, "event": "fail\n[]\n'
                                         '{"t": 3.5, "event": "done", "exit_status": 0}\n')
    (folder / "workers.json").write_text(json.dumps(
        {"generation": 2, "world_size": 2, "agent_pid": 1, "state": "done", "exit_status": 0,
         "job": "", "restarts": 1, "workers": [], "nodes": [], "health": []}))
    return folder


class RunTest(FolderTest):
    def setUp(self):
        super().setUp()
        self.run_folder = make_run(self.folder / "run")
        self.opened = open_run(self.run_folder)


class Metrics(RunTest):
    def test_redone_step_has_its_last_record(self):
        metrics = self.opened.metrics()
        self.assertEqual(metrics["step"].tolist(), [1, 2, 3, 4, 5])
        self.assertEqual(metrics["generation"].tolist(), [1, 1, 2, 2, 2])
        self.assertNotIn("skipped", metrics)

    def test_numbers_are_exact_and_missing_ones_are_nan(self):
        metrics = self.opened.metrics()
        self.assertEqual(metrics["loss"].tolist(), LOSSES)
        numpy.testing.assert_array_equal(metrics["grad_norm"], [1 / 3, 2 / 3, 1, 4 / 3, math.nan])
        numpy.testing.assert_array_equal(metrics["validation_loss"],
                                         [math.nan, 5.0, math.nan, math.nan, math.nan])

    def test_columns_have_the_types_that_the_docstring_says(self):
        metrics = self.opened.metrics()
        for names, dtype in (("step generation world_size tokens", numpy.int64),
                             ("loss grad_norm validation_loss lr step_time_s phases_s.forward t",
                              numpy.float64), ("loss_hex digests.weights", object)):
            for name in names.split():
                self.assertEqual((metrics[name].dtype, metrics[name].shape), (dtype, (5,)), name)
        self.assertEqual(metrics["phases_s.forward"].tolist(), [0.25, 0.5, 0.75, 1.0, 1.25])
        self.assertEqual(metrics["digests.weights"][4], ["00", "05"])

    def test_lists_need_no_numpy_and_arrays_name_it(self):
        with unittest.mock.patch.dict(sys.modules, {"numpy": None}):
            lists = self.opened.metrics(arrays=False)
            self.fails(MissingPackage, self.opened.metrics, "Run.metrics", "-m pip install numpy")
        self.assertEqual(lists["loss"], LOSSES)
        self.assertEqual(lists["step"], [1, 2, 3, 4, 5])

    def test_frame_without_pandas_says_what_to_install(self):
        with unittest.mock.patch.dict(sys.modules, {"pandas": None}):
            self.fails(MissingPackage, self.opened.frame, "Run.frame", "-m pip install pandas")

    def test_steps_and_last_loss_are_those_of_compare(self):
        (self.run_folder / "events.jsonl").unlink()  # compare takes no damaged one
        printed = subprocess.run([LOCKSTEP, "compare", self.run_folder, "--json"], check=True,
                                 capture_output=True, text=True).stdout
        [compared] = json.loads(printed)["runs"]
        metrics = self.opened.metrics()
        self.assertEqual(compared["redone_steps"], 2)
        self.assertEqual(compared["steps"], len(metrics["step"]))
        self.assertEqual(float.fromhex(compared["final_loss_hex"]), metrics["loss"][-1])

    def test_run_without_a_step_has_empty_columns(self):
        (self.run_folder / "metrics.jsonl").unlink()
        metrics = self.opened.metrics()
        self.assertEqual({name: (column.dtype, column.shape) for name, column in metrics.items()},
                         {"step": (numpy.int64, (0,)), "loss": (numpy.float64, (0,))})

    def test_damaged_line_is_named(self):
        path = self.run_folder / "metrics.jsonl"
        lines = path.read_text().split("\n")
        for line, words in (("{", "not JSON"), ("[1]", "not a JSON object"),
                            ('{"step": 2}', "not a step's"), ('{"loss": 2.0}', "not a step's"),
                            ('{"step": 2, "loss_hex": "x"}', "loss_hex")):
            path.write_text("\n".join([lines[0], line, *lines[2:]]))
            self.fails(LockstepError, self.opened.metrics, "metrics.jsonl:2: ", words)


class Folder(RunTest):
    def test_config_and_arguments_are_those_of_run_args(self):
        self.assertEqual(self.opened.config["training"]["steps"], 9)
        self.assertEqual(self.opened.arguments["parameters"], 1234)
        (self.run_folder / "run_args.json").write_text("{")
        self.fails(LockstepError, lambda: self.opened.config, "run_args.json", "damaged")
        (self.run_folder / "run_args.json").unlink()
        self.fails(LockstepError, lambda: self.opened.config, "has not begun")

    def test_events_leave_out_lines_that_are_none(self):
        self.assertEqual([event["event"] for event in self.opened.events()],
                         ["generation_start", "done"])
        (self.run_folder / "events.jsonl").unlink()
        self.assertEqual(self.opened.events(), [])

    def test_folder_without_a_run_is_an_error(self):
        self.fails(LockstepError, lambda: open_run(self.programs), str(self.programs), "no run")

    def test_checkpoints_are_those_with_a_manifest_in_their_order(self):
        saved = self.run_folder / "saved"
        self.assertEqual(self.opened.checkpoints(), [])
        self.fails(LockstepError, self.opened.checkpoint, str(saved), "no checkpoint")
        golden_copy(saved / NAME)
        newer = saved / "step_00000020.g2-aaaaaa"
        golden_copy(newer)
        change_manifest(newer, lambda m: m.update(step=20, generation=2))
        (golden_copy(saved / "step_00000030.g2-aaaaaa") / "manifest.json").unlink()
        (golden_copy(saved / "step_00000040.g2-aaaaaa") / "manifest.json").write_text("{")
        found = self.opened.checkpoints()
        self.assertEqual([each.step for each in found], [12, 20])
        self.assertEqual([each.path for each in found], [saved / NAME, newer])
        self.assertEqual(self.opened.checkpoint().step, 20)
        self.assertEqual(self.opened.checkpoint(12).path.name, NAME)
        self.fails(LockstepError, lambda: self.opened.checkpoint(30), "of step 30", "12, 20")
        (saved / "suspect.json").write_text('{"suspect": [{"after_step": 12, "generation": 2}]}')
        self.assertEqual(self.opened.checkpoint().step, 12)
        (newer / "rank_00001.h5").unlink()
        self.fails(LockstepError, lambda: self.opened.checkpoint(20), "rank_00001.h5", "missing")

    def test_relative_folder_stays_where_it_was_when_the_working_directory_changes(self):
        before = os.getcwd()
        self.addCleanup(os.chdir, before)
        os.chdir(self.folder)
        run = open_run("run")
        os.chdir(before)
        self.assertEqual(len(run.metrics()["step"]), 5)


class State(RunTest):
    def test_program_gives_all_that_it_says(self):
        self.use()
        state = self.opened.state()
        said = json.loads(subprocess.run([LOCKSTEP, "status", self.run_folder, "--json"], text=True,
                                         check=True, capture_output=True).stdout)
        self.assertEqual(state.keys(), said.keys())
        self.assertEqual((state["state"], state["step"]), ("done", 5))

    def test_without_a_program_the_files_say_the_same(self):
        known = ("generation", "world_size", "state", "exit_status", "step", "loss")
        self.use()
        said = self.opened.state()
        for script in (None, "echo no such flag >&2; exit 64", "echo no JSON"):
            (self.programs / "lockstep").unlink()
            if script:
                self.use(script)
            state = self.opened.state()
            self.assertEqual([state[key] for key in known], [said[key] for key in known])
            self.assertEqual(state["planned_steps"], 9)
            self.assertIn("whether a process lives is not known", state["notes"][0])
            (self.programs / "lockstep").touch()

    def test_without_a_program_a_run_without_files_is_unknown(self):
        for name in ("metrics.jsonl", "run_args.json", "workers.json"):
            (self.run_folder / name).unlink()
        state = self.opened.state()
        self.assertEqual((state["state"], state["step"], state["loss"]), ("unknown", -1, None))


main()
