"""The log of a search: every question that it asked and the answer, to be written, read, replayed.

A search that learns everything from answers (what there is to try, what a trial showed, how much
time went by) makes the same decisions again when the same answers come from a log instead.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from pathlib import Path
from typing import Any

from dualml.common.errors import UserError
from dualml.common.files import read_text, write_text

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

    def record(
        self, kind: str, ask: Callable[..., Any], clock: Callable[[], float]
    ) -> Callable[..., Any]:
        """Return a function like ``ask`` that also logs each question and its answer.

        Its first argument, the state of the search, follows from the answers before and is not
        logged.
        """

        def ask_and_log(state: Any, *question: Any) -> Any:
            answer = ask(state, *question)
            self.exchanges.append(Exchange(kind, question, answer, clock()))
            return answer

        return ask_and_log

    def write(self, path: Path) -> None:
        """Replace ``path`` by the log, one exchange per line."""
        rows = (
            json.dumps(encode(vars(one)), allow_nan=False, ensure_ascii=False)
            for one in self.exchanges
        )
        write_text(path, "".join(f"{row}\n" for row in rows))


class LoggedHost:
    """A host whose methods also log each question and its answer, see `SearchLog.record`."""

    def __init__(self, host: Any, log: SearchLog, clock: Callable[[], float]) -> None:
        self.host, self.log, self.clock = host, log, clock

    def __getattr__(self, kind: str) -> Callable[..., Any]:
        """Return the host's method of this name, logged."""
        return self.log.record(kind, getattr(self.host, kind), self.clock)


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


class Replay:
    """A host that gives the answers of a log to a search that asks the same questions again."""

    def __init__(self, log: SearchLog) -> None:
        self.log, self.number = log, 0

    def __getattr__(self, kind: str) -> Callable[..., Any]:
        """Return a method that answers questions of this kind."""
        return lambda state, *question: self.answer(kind, question)

    def answer(self, kind: str, question: tuple[Any, ...]) -> Any:
        """Return the recorded answer to the next question.

        Raises:
            UserError: the log holds another question here, or none.
        """
        if self.number == len(self.log.exchanges):
            raise UserError(f"the log of the search ends before question {self.number + 1}: {kind}")
        one = self.log.exchanges[self.number]
        self.number += 1
        if (one.kind, one.question) != (kind, question):
            raise UserError(
                f"question {self.number} of the search is {kind} {question!r}; in its log it is "
                f"{one.kind} {one.question!r}"
            )
        return one.answer

    def clock(self) -> float:
        """Return how much of the budget was spent at the last answer, in seconds."""
        return self.log.exchanges[self.number - 1].at if self.number else 0.0


def encode(value: Any) -> Any:
    """Return a value as strict JSON from which `decode` makes an equal one.

    Tuples, dicts, dataclasses and numbers that are not finite become objects with one key that says
    so. Fields of dataclasses that are not compared are left out.

    Raises:
        TypeError: a value of another type.
    """
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
    if kind == "float":
        return float(content)
    if kind == "tuple":
        return tuple(decode(one, classes) for one in content)
    if kind == "dict":
        return {decode(k, classes): decode(v, classes) for k, v in content}
    return classes[kind](**{name: decode(one, classes) for name, one in content.items()})
