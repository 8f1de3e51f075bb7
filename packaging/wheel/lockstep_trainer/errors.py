"""What can go wrong, for those who catch it."""
import importlib
import sys


class LockstepError(Exception):
    """Its text says what happened, to what, and what to do."""


class MissingPackage(LockstepError, ImportError):
    """A Python package is not installed; the text has the command that installs it."""


class CommandFailed(LockstepError):
    """A program ended with another exit status than 0.

    status: an ExitStatus
    output: the last lines that the program printed; they are in the text as well
    """

    def __init__(self, what, status, output):
        super().__init__(f"{what} ended with exit status {status}\n{output}".rstrip())
        self.status, self.output = status, output


def need(package, caller):
    """The module of this name, which is one of a package of the same name."""
    try:
        return importlib.import_module(package)
    except ImportError as error:
        raise MissingPackage(f"{caller} needs the package {package}, and the Python "
                             f"{sys.executable} cannot import it ({error}): {sys.executable} "
                             f"-m pip install {package}") from error
