"""metrics.jsonl as columns. It has a line for each step; a killed and resumed run computes steps
again and logs them again. As in `lockstep compare`, the last record of a step counts, and a last
line that a kill has cut off is left out."""
import json
import math

from .errors import LockstepError, need


def read_records(path):
    """[record], by step, each step once. Errors: LockstepError with the file and the line."""
    try:
        lines = path.read_bytes().split(b"\n")
    except FileNotFoundError:
        return []
    by_step = {}
    for number, line in enumerate(lines, 1):
        if not line:
            continue
        try:
            record = json.loads(line)
        except ValueError:
            if number == len(lines):
                break
            raise LockstepError(f"{path}:{number}: this line is not JSON. Remove it, or resume the "
                                "run, which sets such lines aside") from None
        step = _step_of(record, f"{path}:{number}")
        by_step[step] = _exact(record, f"{path}:{number}")
    return [by_step[step] for step in sorted(by_step)]


def columns_of(records):
    """{name: list with a value for each record}, see Run.metrics."""
    flat = [dict(_flat(record)) for record in records]
    names = dict.fromkeys(["step", "loss", *(name for record in flat for name in record)])
    return {name: _column([record.get(name) for record in flat]) for name in names}


def arrays_of(columns, caller):
    """The same as arrays of int64, float64, bool or object."""
    numpy = need("numpy", caller)
    dtypes = {"step": numpy.int64, "loss": numpy.float64}
    arrays = {}
    for name, column in columns.items():
        types = {type(value) for value in column}
        [dtype] = types if len(types) == 1 and types <= {bool, int, float} else [object]
        arrays[name] = numpy.empty(len(column), dtype=dtypes.get(name, dtype))
        for row, value in enumerate(column):  # one by one: a value may be a list
            arrays[name][row] = value
    return arrays


def _step_of(record, where):
    if not isinstance(record, dict):
        raise LockstepError(f"{where}: this line is not a JSON object")
    step = record.get("step")
    if type(step) is not int or step < 0 or not {"loss", "loss_hex"} & record.keys():
        raise LockstepError(f"{where}: this line is not a step's: it needs \"step\" and \"loss\"")
    return step


def _exact(record, where):
    """A number is that of its hexadecimal twin, where it has one: the JSON has null for what is not
    finite."""
    twins = [name for name in record if name.endswith("_hex") and record[name] is not None]
    for twin in twins:
        try:
            record[twin[:-len("_hex")]] = float.fromhex(record[twin])
        except (TypeError, ValueError):
            raise LockstepError(f"{where}: {twin} is not a hexadecimal float") from None
    return record


def _flat(record, prefix=""):
    for name, value in record.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{prefix}{name}.")
        else:
            yield prefix + name, value


def _column(values):
    """Numbers become floats, with NaN where a record has none, unless all are int."""
    types = {type(value) for value in values if value is not None}
    if types <= {int, float} and (float in types or None in values):
        return [math.nan if value is None else float(value) for value in values]
    return values
