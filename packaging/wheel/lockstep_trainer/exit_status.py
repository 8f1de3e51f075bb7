"""Exit statuses of Lockstep's programs (docs/FAULTS.md, launcher/control/incident.h)."""
import signal

DONE, RESUME = 0, 75
MEANINGS = {
    DONE: "done",
    64: "the config, the data or the command line is wrong",
    70: "a bug, or an input that nobody foresaw",
    71: "out of memory; `lockstep plan` says what a run needs",
    74: "the disk is full, or a limit on file sizes is reached; make room and start it again",
    RESUME: "the run is not finished; start it again to resume from its newest checkpoint",
    76: "another rank or node is gone; start it again",
    77: "an audit found that a device computes wrong bits; do not use that device",
    78: "a planned change of nodes follows this step; the launcher starts the next generation",
    93: "the same failure came again, or restarts made no progress; do not start it again before "
        "its cause is found",
}


class ExitStatus(int):
    """An exit status as an int: 0, 64, …; below 0 the number of the signal that ended the process.
    `meaning` is its meaning in words; str() gives both."""

    @property
    def meaning(self):
        if self < 0:
            try:
                return f"ended by {signal.Signals(-self).name}"
            except ValueError:
                return f"ended by signal {-self:d}"
        return MEANINGS.get(int(self), "the command failed")

    def __repr__(self):
        return f"{int(self)} ({self.meaning})"

    __str__ = __repr__
