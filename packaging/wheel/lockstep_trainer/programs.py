"""Finds the program `lockstep`, and runs a command of it to its end."""
import os
import pathlib
import shutil
import subprocess
import sysconfig

from . import entry
from .errors import CommandFailed, LockstepError
from .exit_status import ExitStatus

LAST_LINES = 20  # of what a program printed, in the text of an error


def find_program():
    """(path, environment): the program of this package, with what its wheel's entry point gives it;
    else `lockstep` in PATH. Errors: LockstepError where there is none."""
    own = entry.HERE / "bin/lockstep"
    if own.exists():
        script = pathlib.Path(sysconfig.get_path("scripts"), "lockstep")
        return own, entry.program_environment(os.environ, str(script if script.exists() else own),
                                              entry.first_processor())
    found = shutil.which("lockstep")
    if not found:
        raise LockstepError("there is no program `lockstep`, neither in this package "
                            f"({entry.HERE}) nor in PATH: install Lockstep's wheel, or add the "
                            "folder of the program to PATH (docs/INSTALL.md)")
    return pathlib.Path(found).absolute(), dict(os.environ)


def command(*words, timeout=None, environment=None):
    """Runs `lockstep WORDS` to its end: command("prepare", "texts", "--out", "tokens").

    words: str, numbers or paths, each one argument
    timeout: seconds
    environment: {name: value} that is added to the environment of the program
    Returns what it printed to standard output, as a str.
    Errors: CommandFailed with the last lines of its output where its exit status is not 0;
    TimeoutError, after which the program is killed; LockstepError where there is no program.
    """
    path, inherited = find_program()
    what = " ".join(["lockstep", *map(str, words)])
    try:
        done = subprocess.run([path, *map(str, words)], env={**inherited, **(environment or {})},
                              timeout=timeout, stdin=subprocess.DEVNULL, capture_output=True,
                              text=True, encoding="utf-8", errors="replace", check=False)
    except OSError as error:
        raise LockstepError(f"{path} does not start: {error}") from error
    except subprocess.TimeoutExpired as error:
        raise TimeoutError(f"`{what}` still ran after {timeout} s, and was killed") from error
    if done.returncode != 0:
        raise CommandFailed(f"`{what}`", ExitStatus(done.returncode),
                            last_lines(done.stdout + done.stderr))
    return done.stdout


def last_lines(text, count=LAST_LINES):
    return "\n".join(text.rstrip("\n").split("\n")[-count:])
