"""Starts and stops `lockstep launch`."""
import json
import numbers
import os
import pathlib
import re
import signal
import subprocess
import tempfile
import weakref

from .errors import CommandFailed, LockstepError
from .exit_status import DONE, RESUME, ExitStatus
from .programs import LAST_LINES, command, find_program, last_lines
from .runs import Run

CHECK_TIMEOUT_S = 600     # of a config and its data, which may be far away
OUTPUT_BYTES = 64 * 1024  # that are read for the last lines


def start(config, overrides=None, nproc_per_node=1, flags=(), environment=None):
    """Starts `lockstep launch CONFIG` on this machine, and returns a Process at once.

    config: path of a TOML file; relative paths in it are relative to the working directory
    overrides: {"training.steps": 100, "model.tie_word_embeddings": True, "data.weights": [3, 1]}:
        values that take the place of those of the file
    nproc_per_node: workers on this machine
    flags: more words of the command line, as ["--max-restarts", "0"]
    environment: {name: value} that is added to the environment of the program
    The config and the data are checked first (`--dry-run`). A run whose folder has a checkpoint is
    resumed. The training goes on when this Python ends, and Ctrl-C does not reach it.
    Errors: CommandFailed with the last lines of the output where the config or the data is wrong;
    LockstepError where there is no program; TypeError for a value that no key can have.
    """
    words = ["launch", str(config), *_as_flags(overrides or {}),
             f"--nproc-per-node={nproc_per_node}", *map(str, flags)]
    checked = command(*words, "--dry-run", timeout=CHECK_TIMEOUT_S,
                      environment=environment)
    found = re.search(r'^dump_folder = (".*")$', checked, re.MULTILINE)
    if not found:
        raise LockstepError("`lockstep launch --dry-run` does not say where the run's outputs go. "
                            "It printed:\n" + last_lines(checked))
    return Process(words, json.loads(found.group(1)), environment or {})


class Process:
    """A `lockstep launch` that start() has started.

    run: the Run that it trains
    pid: int
    """

    def __init__(self, words, folder, environment):
        path, inherited = find_program()
        self.run = Run(folder)
        self._words = ["lockstep", *words]
        with tempfile.TemporaryFile() as file:  # not a pipe: nobody has to empty it
            self._log = os.dup(file.fileno())
        weakref.finalize(self, os.close, self._log)
        self._stopped = False
        try:
            self._process = subprocess.Popen(
                [path, *words], env={**inherited, **environment}, stdin=subprocess.DEVNULL,
                stdout=self._log, stderr=subprocess.STDOUT, start_new_session=True)
        except OSError as error:
            raise LockstepError(f"{path} does not start: {error}") from error
        self.pid = self._process.pid

    def __repr__(self):
        status = self.status
        return f"<Process {self.pid}, " + \
            ("running>" if status is None else f"ended with exit status {status}>")

    @property
    def status(self):
        """None while it runs, then its ExitStatus."""
        code = self._process.poll()
        return None if code is None else ExitStatus(code)

    def wait(self, timeout=None, check=False):
        """Waits until it ends, and returns its ExitStatus: 0 done, 75 start it again to resume, …
        (`meaning` says it in words).

        timeout: seconds; None waits without end
        check: raise CommandFailed, with the last lines of the output, unless it is done, or was
            stopped by stop() and can be resumed
        Errors: CommandFailed; TimeoutError with the last lines of the output: it goes on running.
        """
        try:
            self._process.wait(timeout)
        except subprocess.TimeoutExpired as error:
            raise TimeoutError(f"`{' '.join(self._words)}` still runs after {timeout} s. Its last "
                               f"lines:\n{self.output()}") from error
        fine = (DONE, RESUME) if self._stopped else (DONE,)
        if check and self.status not in fine:
            raise CommandFailed(f"`{' '.join(self._words)}`", self.status, self.output())
        return self.status

    def stop(self):
        """Asks it to save and end (SIGTERM), and returns at once; wait() then gives 75, or 0 where
        it was done before. A second call does nothing, so it cannot cut off the save."""
        if not self._stopped and self.status is None:
            self._process.send_signal(signal.SIGTERM)
            self._stopped = True

    def output(self, lines=LAST_LINES):
        """The last lines that it printed, at most 64 KiB, as a str. The folder logs/ of the run has
        the whole output of each worker."""
        size = os.fstat(self._log).st_size
        # pread: the program writes at the offset of this file.
        raw = os.pread(self._log, OUTPUT_BYTES, max(0, size - OUTPUT_BYTES))
        return last_lines(raw.decode("utf-8", errors="replace"), lines)


def _as_flags(overrides):
    return [f"--{key}={_text(key, value)}" for key, value in overrides.items()]


def _text(key, value):
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (list, tuple)):
        return ",".join(_text(key, each) for each in value)
    if isinstance(value, (str, numbers.Real, pathlib.PurePath)):
        return str(value)
    raise TypeError(f"overrides: the value of {key} is a {type(value).__name__}; it has to be a "
                    "bool, a number, a str, a path or a list of these")
