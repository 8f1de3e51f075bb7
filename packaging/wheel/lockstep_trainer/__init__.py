"""Lockstep from Python: runs, checkpoints, and processes that train.

    run = lockstep_trainer.open_run("results/training/x")    # what a run wrote
    checkpoint = run.checkpoint()                            # its newest one, by names of tensors
    process = lockstep_trainer.start("config.toml")          # `lockstep launch`
    lockstep_trainer.command("prepare", "texts", "--out", "tokens")   # any other command

The package needs Python 3.9 and its standard library. A method that needs numpy, pandas, h5py or
hdf5plugin imports it when it is called, and says what to install where it is missing. No method
imports torch. Every error of this package is a LockstepError, but for TimeoutError where a timeout
was given, and TypeError for an override that no key can have. docs/PYTHON.md shows a notebook.

The command `lockstep` of a wheel is main() of entry.py.
"""
import importlib

# A name is imported when it is asked for: the command `lockstep` uses main() alone, and does not
# wait for the imports of the others.
_MODULES = {
    "Checkpoint": "checkpoints", "open_checkpoint": "checkpoints",
    "HERE": "entry", "main": "entry",
    "CommandFailed": "errors", "LockstepError": "errors", "MissingPackage": "errors",
    "ExitStatus": "exit_status",
    "Process": "processes", "start": "processes",
    "command": "programs",
    "Run": "runs", "open_run": "runs",
}
__all__ = ["CommandFailed", "Checkpoint", "ExitStatus", "LockstepError", "MissingPackage",
           "Process", "Run", "command", "open_checkpoint", "open_run", "start"]

TYPE_CHECKING = False
if TYPE_CHECKING:  # for editors, which do not run __getattr__
    from .checkpoints import Checkpoint, open_checkpoint
    from .errors import CommandFailed, LockstepError, MissingPackage
    from .exit_status import ExitStatus
    from .processes import Process, start
    from .programs import command
    from .runs import Run, open_run


def __getattr__(name):
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f".{_MODULES[name]}", __name__), name)
    globals()[name] = value
    return value


def __dir__():
    return sorted({*globals(), *_MODULES})
