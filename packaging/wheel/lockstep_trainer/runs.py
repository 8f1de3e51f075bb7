"""What a run wrote into its folder."""
import json
import pathlib

from . import checkpoints as _checkpoints
from .errors import CommandFailed, LockstepError, need
from .programs import command
from .step_records import arrays_of, columns_of, read_records

FILES = ("run_args.json", "metrics.jsonl", "events.jsonl", "workers.json")
STATUS_TIMEOUT_S = 60


def open_run(folder):
    """The Run whose outputs are in `folder` (`job.dump_folder`, else results/training/<job.name>).
    Errors: LockstepError where there is no run."""
    run = Run(folder)
    if not any((run.folder / name).exists() for name in FILES):
        raise LockstepError(f"{run.folder}: there is no run (it has none of {', '.join(FILES)}); "
                            "name the folder that the log of the training names")
    return run


class Run:
    """A run's folder. Files are read at each call, so a Run follows a run that is training.

    folder: a pathlib.Path, absolute
    """

    def __init__(self, folder):
        self.folder = pathlib.Path(folder).absolute()

    def __repr__(self):
        return f"<Run {self.folder}>"

    @property
    def config(self):
        """The whole config as a dict of dicts: run.config["training"]["seq_len"].
        Errors: LockstepError before the run has begun its first step."""
        return self.arguments["config"]

    @property
    def arguments(self):
        """run_args.json as a dict: "config", "identity", "parameters", "world_size" and others.
        Errors: as config."""
        path = self.folder / "run_args.json"
        try:
            return json.loads(path.read_bytes())
        except FileNotFoundError:
            raise LockstepError(f"{path} does not exist: this run has not begun to train") from None
        except ValueError as error:
            raise LockstepError(f"{path} is damaged: {error}") from None

    def metrics(self, arrays=True):
        """What was logged of each step, as {name: column}, in the order of the steps.

        Each step is there once. Of a step that was computed again after a restart, the last record
        counts, as in `lockstep compare`. Names are those of metrics.jsonl; a nested value has a
        name with dots:
          "step", "generation", "world_size", "tokens"    int64; tokens of one step
          "loss", "grad_norm"                             float64, exact to the last bit
          "validation_loss"                               float64, NaN where none was computed
          "lr", "step_time_s", "phases_s.forward", …      float64; `_s`: seconds
          "t"                                             float64, Unix time in seconds
          "loss_hex", "digests.weights", …                object: str, or a list of str
        Before the first step there are "step" and "loss" without rows.

        arrays: numpy arrays of shape [steps]; False gives lists, and needs no numpy
        Errors: LockstepError with the line of metrics.jsonl that is damaged; MissingPackage.
        """
        columns = columns_of(read_records(self.folder / "metrics.jsonl"))
        return arrays_of(columns, "Run.metrics") if arrays else columns

    def frame(self):
        """The same as a pandas.DataFrame with a row for each step; its index is the step:
        run.frame()["loss"].plot(). Errors: as metrics."""
        pandas = need("pandas", "Run.frame")
        return pandas.DataFrame(self.metrics(arrays=False)).set_index("step")

    def events(self):
        """What the launcher logged, a dict for each event, in the order of the file: "t" (Unix time
        in seconds), "event" ("generation_start", "failure_detected", "done", …) and what belongs to
        it. Lines that are not JSON objects are left out, as in `lockstep status`."""
        try:
            lines = (self.folder / "events.jsonl").read_bytes().split(b"\n")
        except FileNotFoundError:
            return []
        return [event for event in map(_parsed, lines) if isinstance(event, dict)]

    def state(self):
        """How the run is, as the dict of `lockstep status --json`: "state" ("running", "done",
        "stopped", "failed", "agent_gone" or "unknown"), "step", "planned_steps", "loss",
        "tokens_per_s" of all ranks, "eta_s", "checkpoint_step", "restarts", "workers", …; -1 (None
        of the loss) stands for what is not known.

        Where the program `lockstep` does not run, the files alone are read: then there are fewer
        keys, no "workers", and a "running" run may have been killed. "notes" says so.
        """
        try:
            return json.loads(command("status", self.folder, "--json", timeout=STATUS_TIMEOUT_S))
        except (LockstepError, TimeoutError, ValueError) as error:
            return self._state_of_files(error)

    def checkpoints(self):
        """The checkpoints of the run, a list of Checkpoint, the oldest first. They have `step`,
        `path` and `size_bytes`. Saves that were not finished are left out. No file of a rank is
        looked at."""
        return _checkpoints.list_checkpoints(self._checkpoint_folder())

    def checkpoint(self, step=None):
        """The newest Checkpoint of this step; without a step the newest of all that no audit made
        suspect. Errors: LockstepError where there is none, and where it is not complete."""
        found = _checkpoints.choose(self.checkpoints(), step, self._checkpoint_folder())
        found.check_files()
        return found

    def _checkpoint_folder(self):
        try:
            name = self.config["checkpoint"]["folder"]
        except (LockstepError, KeyError):
            name = "checkpoints"
        return self.folder / name  # an absolute one wins

    def _state_of_files(self, why):
        members, totals = (self._object(name) for name in ("workers.json", "metrics.json"))
        records = read_records(self.folder / "metrics.jsonl")
        last, saved = records[-1] if records else {}, self.checkpoints()
        state = "done" if totals.get("finished") else "unknown"
        said = why.output if isinstance(why, CommandFailed) else str(why)
        return {
            "generation": members.get("generation", last.get("generation", -1)),
            "world_size": members.get("world_size", last.get("world_size", -1)),
            "state": members.get("state", state),
            "exit_status": members.get("exit_status", -1),
            "step": last.get("step", -1),
            "planned_steps": self._object("run_args.json").get("config", {}).get("training", {})
            .get("steps", -1),
            "loss": last.get("loss"),
            "checkpoint_step": max((each.step for each in saved if not each.suspect), default=-1),
            "restarts": members.get("restarts", -1),
            "notes": ["this is what the files say; whether a process lives is not known, because "
                      f"`lockstep status` gave no answer: {said}"],
        }

    def _object(self, name):
        """Of a file that is not there, or damaged, an empty one."""
        try:
            found = _parsed((self.folder / name).read_bytes())
        except OSError:
            found = None
        return found if isinstance(found, dict) else {}


def _parsed(raw):
    try:
        return json.loads(raw)
    except ValueError:
        return None
