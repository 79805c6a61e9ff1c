"""The log of a search for causes: every question and its answer, written and read as JSON lines.

`dualml.parity.engine` asks the questions, and replays them from a log.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from pathlib import Path
from typing import Any

import numpy as np

from dualml.common.errors import UserError
from dualml.common.files import read_text, remove_file, write_text

#: Name of the file beside the result of a search.
SEARCH_LOG = "search.jsonl"
#: Largest size of a log that is read, in bytes.
MAX_LOG_BYTES = 1 << 28


@dataclass(frozen=True)
class Exchange:
    """One question of a search and its answer.

    Attributes:
        kind: the kind of question, such as ``evaluate``.
        question: the values that the question is about.
        at: how much of the budget was spent when the answer came, in seconds.
    """

    kind: str
    question: tuple[Any, ...]
    answer: Any
    at: float


@dataclass
class SearchLog:
    """The exchanges of one search, in order."""

    exchanges: list[Exchange] = field(default_factory=list)

    @property
    def seconds_spent(self) -> float:
        """Seconds of the budget that were spent at the last answer."""
        return self.exchanges[-1].at if self.exchanges else 0.0

    def answers(self, kind: str) -> Iterator[Any]:
        """Yield all answers to questions of one kind, in order."""
        return (one.answer for one in self.exchanges if one.kind == kind)

    def write(self, path: Path) -> None:
        """Replace ``path`` by the log, one exchange per line; remove it if there are none."""
        if not self.exchanges:
            remove_file(path)
            return
        rows = (
            json.dumps(encode(vars(one)), allow_nan=False, ensure_ascii=False)
            for one in self.exchanges
        )
        write_text(path, "".join(f"{row}\n" for row in rows))


def read_log(path: Path, classes: Sequence[type]) -> SearchLog:
    """Read a log that `SearchLog.write` wrote.

    Args:
        classes: the dataclasses that occur in its questions and answers.

    Raises:
        UserError: the file is not such a log.
    """
    known = {one.__name__: one for one in classes}
    try:
        rows = [json.loads(line) for line in read_text(path, MAX_LOG_BYTES).splitlines()]
        return SearchLog([Exchange(**decode(row, known)) for row in rows])
    except (ValueError, LookupError, TypeError) as error:
        raise UserError(f"{path} is not the log of a search: {error}") from error


def encode(value: Any) -> Any:
    """Return a value as strict JSON from which `decode` makes an equal one.

    Scalars of NumPy become Python's. Tuples, dicts, dataclasses and numbers that are not finite
    become objects with one key that says so. Fields of dataclasses that are not compared are left
    out.

    Raises:
        TypeError: a value of another type.
    """
    value = value.item() if isinstance(value, np.generic) else value
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else {"float": repr(value)}
    if isinstance(value, tuple):
        return {"tuple": [encode(one) for one in value]}
    if isinstance(value, list):
        return [encode(one) for one in value]
    if isinstance(value, dict):
        return {"dict": [[encode(k), encode(v)] for k, v in value.items()]}
    if is_dataclass(value):
        own = {f.name: encode(getattr(value, f.name)) for f in fields(value) if f.compare}
        return {type(value).__name__: own}
    raise TypeError(f"a log holds no {type(value).__name__}: {value!r}")


def decode(row: Any, classes: dict[str, type]) -> Any:
    """Return the value that `encode` returned as JSON, with dataclasses from ``classes``."""
    if isinstance(row, list):
        return [decode(one, classes) for one in row]
    if not isinstance(row, dict):
        return row
    ((kind, content),) = row.items()
    if kind == "float":  # one object for every NaN: replays compare questions
        return math.nan if content == "nan" else float(content)
    if kind == "tuple":
        return tuple(decode(one, classes) for one in content)
    if kind == "dict":
        return {decode(k, classes): decode(v, classes) for k, v in content}
    return classes[kind](**{name: decode(one, classes) for name, one in content.items()})
