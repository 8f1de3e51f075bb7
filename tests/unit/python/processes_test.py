"""lockstep_trainer.start and command, with shell scripts in the place of `lockstep`."""
import json
import pathlib
import re
import shutil
import subprocess
import sys
import time

from package import PACKAGE, SOURCE, FolderTest, main
from lockstep_trainer import CommandFailed, ExitStatus, LockstepError, command, start
from lockstep_trainer.exit_status import MEANINGS

DEADLINE_S = 60
# Says what it was given, and where its outputs go; then "$0.body" is what it does as a training.
CHECKS = ('case "$*" in *--dry-run*) printf \'%s\\n\' "$@" > "$0.checked"\n'
          'printf \'[job]\\nname = "x"\\ndump_folder = "runs/a \\\\"b\\\\""\\n\'; exit 0;; esac\n'
          'printf \'%s\\n\' "$@" > "$0.given"\n')


class Started(FolderTest):
    def trains(self, body, *arguments, **more):
        self.use(CHECKS + body)
        process = start("config.toml", *arguments, **more)
        self.addCleanup(process._process.wait)
        self.addCleanup(process._process.kill)  # the last one is called first
        return process

    def words(self, name="given"):
        return (self.programs / f"lockstep.{name}").read_text().splitlines()

    def test_overrides_and_flags_are_words_of_the_command(self):
        process = self.trains("exit 0", {"training.steps": 100, "optimizer.lr": 1e-3,
                                         "model.tie_word_embeddings": True, "data.weights": [3, 1],
                                         "data.path": pathlib.Path("a b")}, 2,
                              flags=["--max-restarts", 0])
        self.assertEqual(process.wait(DEADLINE_S, check=True), 0)
        words = ["launch", "config.toml", "--training.steps=100", "--optimizer.lr=0.001",
                 "--model.tie_word_embeddings=true", "--data.weights=3,1", "--data.path=a b",
                 "--nproc-per-node=2", "--max-restarts", "0"]
        self.assertEqual(self.words(), words)
        self.assertEqual(self.words("checked"), [*words, "--dry-run"])
        self.fails(TypeError, lambda: start("config.toml", {"training.steps": None}),
                   "training.steps", "NoneType")

    def test_run_is_where_the_program_says(self):
        process = self.trains("exit 0")
        self.assertEqual(process.run.folder, pathlib.Path('runs/a "b"').absolute())
        process.wait(DEADLINE_S)
        self.assertEqual(process.run.metrics(arrays=False), {"step": [], "loss": []})

    def test_environment_is_added(self):
        process = self.trains('echo "$WORD"', environment={"WORD": "hello"})
        process.wait(DEADLINE_S)
        self.assertEqual(process.output(), "hello")

    def test_wrong_config_is_an_error_with_the_last_lines(self):
        self.use('echo "something" >&2; echo "training.stepz: unknown option" >&2; exit 64')
        error = self.fails(CommandFailed, lambda: start("config.toml"), "64", "is wrong",
                           "training.stepz: unknown option", "config.toml")
        self.assertEqual(error.status, 64)

    def test_program_that_does_not_say_its_folder_is_an_error(self):
        self.use("echo nothing")
        self.fails(LockstepError, lambda: start("config.toml"), "does not say where", "nothing")

    def test_failure_has_its_meaning_and_the_last_lines(self):
        process = self.trains("i=0; while [ $i -lt 40 ]; do i=$((i + 1)); echo line $i; done\n"
                              "exit 93")
        status = process.wait(DEADLINE_S)
        self.assertEqual(status, 93)
        self.assertIn("do not start it again", status.meaning)
        error = self.fails(CommandFailed, lambda: process.wait(check=True), "93 (", "line 40")
        self.assertEqual(error.output.splitlines(), [f"line {i}" for i in range(21, 41)])
        self.assertEqual(process.output(2), "line 39\nline 40")
        self.assertIn("ended with exit status 93", repr(process))

    def test_wait_with_a_timeout_leaves_it_running(self):
        process = self.trains("echo begun; read word < /dev/zero")
        while process.output() != "begun":
            time.sleep(0.01)
        self.fails(TimeoutError, lambda: process.wait(0), "still runs", "begun")
        self.assertIsNone(process.status)
        self.assertIn("running", repr(process))

    def test_stop_asks_once_and_the_run_can_be_resumed(self):
        process = self.trains("trap 'echo asked' TERM; echo begun\n"
                              'until [ -e "$0.end" ]; do sleep 0.01; done; exit 75')
        while process.output() != "begun":
            time.sleep(0.01)
        process.stop()
        while process.output() == "begun":
            time.sleep(0.01)
        process.stop()
        (self.programs / "lockstep.end").touch()
        status = process.wait(DEADLINE_S, check=True)
        self.assertEqual(status, 75)
        self.assertIn("start it again", status.meaning)
        self.assertEqual(process.output(), "begun\nasked")
        process.stop()

    def test_run_that_nobody_stopped_is_not_fine_with_75(self):
        process = self.trains("exit 75")
        self.fails(CommandFailed, lambda: process.wait(DEADLINE_S, check=True), "75 (")

    def test_long_output_is_read_from_its_end(self):
        process = self.trains("dd if=/dev/zero bs=1000 count=200 2> /dev/null | tr '\\0' 'x'\n"
                              "echo; echo end")
        process.wait(DEADLINE_S)
        self.assertLessEqual(len(process.output()), 64 * 1024)
        self.assertTrue(process.output().endswith("x\nend"))


class Commands(FolderTest):
    def test_command_returns_what_it_printed(self):
        self.use('echo "$# $*"')
        self.assertEqual(command("prepare", pathlib.Path("a b"), "--files", 3),
                         "4 prepare a b --files 3\n")

    def test_real_program_answers(self):
        self.use()
        self.assertIn("lockstep", command("--version"))
        error = self.fails(CommandFailed, lambda: command("statis"), "statis", "64")
        self.assertEqual(error.status, 64)

    def test_slow_command_is_killed(self):
        self.use("exec sleep 1000")
        self.fails(TimeoutError, lambda: command("status", timeout=0.1), "`lockstep status`")

    def test_no_program_is_an_error_that_says_where_it_was_looked_for(self):
        for body in (lambda: command("status"), lambda: start("config.toml")):
            self.fails(LockstepError, body, "no program `lockstep`", str(PACKAGE), "PATH")

    def test_program_that_cannot_start_is_an_error(self):
        (self.programs / "lockstep").write_text("#!/nonexistent/interpreter\n")
        (self.programs / "lockstep").chmod(0o755)
        self.fails(LockstepError, lambda: command("status"), "does not start")

    def test_program_of_the_wheel_comes_before_that_of_the_path(self):
        site = self.folder / "site"
        shutil.copytree(PACKAGE, site / "lockstep_trainer")
        own = site / "lockstep_trainer/bin/lockstep"
        worker = site / "lockstep_trainer/torch-2.15/lockstep-worker"
        for each in (own, worker):
            each.parent.mkdir()
            each.touch()
        own.write_text('#!/bin/sh\necho "the wheel\'s: $1, $LOCKSTEP_PYTHON, $LOCKSTEP_ENTRY"\n')
        own.chmod(0o755)
        self.use("echo another one")
        code = "import lockstep_trainer as l; print(l.command('status'))"
        printed = subprocess.run([sys.executable, "-c", code], cwd=site, check=True, text=True,
                                 capture_output=True).stdout
        self.assertEqual(printed.strip(), f"the wheel's: status, {sys.executable}, {own}")


class Package(FolderTest):
    def test_each_exit_status_of_the_launcher_has_a_meaning(self):
        header = (SOURCE / "launcher/control/incident.h").read_text()
        statuses = {int(found) for found in re.findall(r"int kExit\w+ = (\d+);", header)}
        self.assertEqual(statuses, MEANINGS.keys())
        self.assertEqual(str(ExitStatus(0)), "0 (done)")
        self.assertIn("SIGKILL", str(ExitStatus(-9)))
        self.assertEqual(json.dumps(ExitStatus(75)), "75")

    def test_all_names_have_a_docstring_and_the_entry_point_imports_none_of_them(self):
        code = ("import sys, lockstep_trainer as l; l.main\n"
                "print([name for name in sys.modules if name.startswith('lockstep_trainer.')])\n"
                "print([name for name in l.__all__ if not getattr(l, name).__doc__])")
        printed = subprocess.run([sys.executable, "-c", code], cwd=PACKAGE.parent, check=True,
                                 text=True, capture_output=True).stdout
        self.assertEqual(printed, "['lockstep_trainer.entry']\n[]\n")


main()
