"""Records of a trial, ``rankR.jsonl``: one JSON line per measured number."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dualml.common.errors import UserError
from dualml.common.files import nonfinite_to_none, open_to_append, read_bytes
from dualml.common.json_types import JsonObject
from dualml.common.parse import INTEGER_BOUND, from_json

Array = NDArray[np.float64]
COLUMNS = ("step", "value", "epochs", "seconds")
#: Encoder made once, because `json.dumps` would make one for every line.
ENCODE = json.JSONEncoder(allow_nan=False).encode
NUMBERS, NAN = {int, float}, float("nan")
Row = tuple[float, ...]
#: Maximum bytes of a file of records: a million updates with five metrics each have about 600
#: million.
MAX_FILE_BYTES = 2**30


@dataclass(frozen=True)
class Curve:
    """One metric of one trial: float64 arrays of equal length, NaN where nothing was recorded.

    Attributes:
        step: updates made.
        value: in the unit of the metric.
        epochs: sample gradients over training samples.
        seconds: seconds of training.
    """

    step: Array
    value: Array
    epochs: Array
    seconds: Array

    def __repr__(self) -> str:
        if not len(self.step):
            return "<Curve: no records>"
        return (
            f"<Curve: {len(self.step)} records of updates {self.step[0]:g} to {self.step[-1]:g}, "
            f"from {self.value[0]:.4g} to {self.value[-1]:.4g}>"
        )


def records_path(trial: Path, rank: int) -> Path:
    """Return the path of a rank's records in the folder of a trial."""
    return trial / f"rank{rank}.jsonl"


class RecordWriter:
    """Writer that appends a rank's records to its file in the folder ``trial``; an existing file is
    first cut.

    Args:
        size: bytes of an existing file to keep, as recorded in the checkpoint resumed from; 0:
            none.
    """

    def __init__(self, trial: Path, rank: int = 0, size: int = 0) -> None:
        self._file = open_to_append(records_path(trial, rank))
        self._file.truncate(size)

    def write(self, metric: str, step: int, value: float, unit: str, **more: Any) -> None:
        """Append one record, which may stay in memory until `flush`; a value that is not finite is
        written as null, and ``more`` are further fields."""
        record = {"metric": metric, "step": step, "value": value, "unit": unit, **more}
        line = ENCODE(nonfinite_to_none(record))
        self._file.write(line.encode() + b"\n")

    def flush(self) -> int:
        """Hand all records to the operating system, and return the size of the file in bytes."""
        self._file.flush()
        return self._file.tell()

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def read_records(trial: Path, rank: int = 0, size: int | None = None) -> dict[str, Curve]:
    """Read a rank's curves: metric → curve in the order of updates, ``METRIC/CLASS`` for metrics
    per class.

    The result is empty if the rank recorded nothing. An incomplete last line is dropped: the worker
    was killed while it wrote.

    Args:
        size: read only this many bytes; None: all.

    Raises:
        UserError: any other line is no record; the text names it.
    """
    path = records_path(trial, rank)
    lines = read_raw_lines(path, size)
    return {name: make_curve(path, name, rows) for name, rows in group_rows(path, lines).items()}


def read_lines(trial: Path, rank: int = 0) -> list[JsonObject]:
    """Read every record of a rank as it was written, in the order of the file; empty without a
    file, and without an incomplete last line.

    Raises:
        UserError: any other line is no record; the text names it.
    """
    path = records_path(trial, rank)
    return [record for record, _, _ in iter_records(path, read_raw_lines(path))]


def read_raw_lines(path: Path, size: int | None = None) -> list[bytes]:
    """Return the lines of a file's first ``size`` bytes (None: all); empty if there is no file.
    Raise `UserError` if it cannot be read."""
    try:
        return read_bytes(path, MAX_FILE_BYTES)[:size].splitlines()
    except FileNotFoundError:
        return []
    except UserError:
        raise
    except OSError as error:
        raise UserError(f"{path}: not readable: {error.strerror or error}") from None


def group_rows(path: Path, lines: list[bytes], first: int = 1) -> dict[str, list[Row]]:
    """Group the records in ``lines`` by metric, named as by `read_records`: metric → rows (step,
    value, epochs, seconds) with NaN for missing numbers. An incomplete last line is left out.
    ``path`` and ``first``, the number of the first line, are for error messages."""
    rows: dict[str, list[Row]] = {}
    for _, name, row in iter_records(path, lines, first):
        rows.setdefault(name, []).append(row)
    return rows


def iter_records(
    path: Path, lines: list[bytes], first: int = 1
) -> Iterator[tuple[dict[str, Any], str, Row]]:
    """Yield every record with its metric, named as by `read_records`, and its row (step, value,
    epochs, seconds); raise `UserError` for a line that is no record."""
    for number, record in enumerate(parse_lines(path, lines, first), start=first):
        try:
            if not isinstance(record, dict):
                raise TypeError(f"a table is expected; received {type(record).__name__}")
            if not isinstance(name := record["metric"], str):
                raise TypeError("metric is no name")
            if "class" in record:
                name = f"{name}/{record['class']}"
            value, epochs, seconds = map(record.get, COLUMNS[1:])
            row = (
                record["step"],
                NAN if value is None else value,
                NAN if epochs is None else epochs,
                NAN if seconds is None else seconds,
            )
            if not {*map(type, row)} <= NUMBERS or not 0 <= row[0] < INTEGER_BOUND:
                raise TypeError("a number is expected")
        except (KeyError, TypeError, AttributeError) as error:
            raise UserError(f"{path}, line {number} is not a record: {error}") from None
        yield record, name, row


def make_curve(path: Path, name: str, rows: list[Row]) -> Curve:
    """Make the curve of metric ``name`` from its rows, sorted by update, with NaN for infinities;
    raise `UserError` for a number beyond 64 bits."""
    try:
        columns = np.array(sorted(rows), np.float64).T
    except OverflowError:
        raise UserError(f"{path}: {name}: a number beyond 64 bits") from None
    columns[np.isinf(columns)] = NAN
    return Curve(*columns)


def parse_lines(path: Path, lines: list[bytes], first: int = 1) -> list[Any]:
    """Return the JSON value of every line; leave out an incomplete last line, and raise
    `UserError`, with the line number counted from ``first``, for any other invalid one."""
    try:
        return list(json.loads(b"[" + b",".join(lines) + b"]"))
    except (ValueError, RecursionError):
        pass  # which line is it?
    values = []
    for number, line in enumerate(lines, start=1):
        try:
            values.append(from_json(line))
        except ValueError as error:
            if number < len(lines):
                raise UserError(f"{path}, line {first + number - 1}: {error}") from None
    return values


def update_losses(
    trial: Path, rank: int, records: Mapping[str, Curve], updates: int | None
) -> NDArray[np.float64]:
    """Return the loss of each update, shape (updates,), from the curve ``loss`` of ``records``;
    ``trial`` and ``rank`` only name the file in errors.

    Raises:
        UserError: the loss of an update is missing, or there are not ``updates`` of them (None: any
            number).
    """
    path, losses = records_path(trial, rank), records.get("loss")
    if losses is None:
        raise UserError(f"{path}: no losses")
    wrong = np.flatnonzero(losses.step != np.arange(1, len(losses.step) + 1))
    if len(wrong):
        raise UserError(f"{path}: the loss of update {wrong[0] + 1} is missing")
    if updates not in (None, len(losses.step)):
        raise UserError(f"{path}: losses of {len(losses.step)} updates; there were {updates}")
    return losses.value
