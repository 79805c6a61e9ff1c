"""The engine of every search for causes: one inquiry of a host, logged so that it can be replayed.

A host knows what there is to try and what a trial shows. There are two: the graph of a model
(`dualml.parity.causes.graph_host`), which runs one side again under mutations, and an experiment
(`dualml.parity.finder.host`), whose update the reference predicts. A search is a function
``search(candidates, budget, evaluate)``. It learns everything through an `Inquiry`, which logs each
question and its answer; from the log alone it makes the same decisions again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Generic, Protocol, TypeVar

from dualml.common.errors import UserError
from dualml.parity.search_log import Exchange, SearchLog


class SearchBudget(Protocol):
    """The limits of a search, among them time."""

    @property
    def clock(self) -> Callable[[], float]:
        """A function that returns the seconds since the search began."""
        ...


C = TypeVar("C")
E = TypeVar("E")
R = TypeVar("R")
B = TypeVar("B", bound=SearchBudget)
#: Times longer that a search may take on the wall where the machine is busy.
MAX_STRETCH = 2.0
#: Kind of the first exchange of a search, whose answer is its budget.
BUDGET = "budget"


def make_clock() -> Callable[[], float]:
    """Return a clock of this process's work, in seconds from now: its processor time, so that other
    programs on the machine take nothing from a search; at most the time on the wall, which several
    threads would exceed, and at least a `MAX_STRETCH`-th of it."""
    wall, work = time.monotonic(), time.process_time()

    def count_seconds() -> float:
        """Return the seconds of work since the clock was made."""
        passed = time.monotonic() - wall
        return max(min(time.process_time() - work, passed), passed / MAX_STRETCH)

    return count_seconds


@dataclass(frozen=True)
class Inquiry(Generic[C, B, E]):
    """Whom a search asks, its limits, and the log of what it asked so far.

    Attributes:
        candidates: the host, whose methods say what there is to try.
        budget: the limits, among them a clock.
        evaluate: makes one trial and returns what it shows.
        log: every question to ``candidates`` and ``evaluate``, with its answer.
    """

    candidates: C
    budget: B
    evaluate: E
    log: SearchLog


def start_inquiry(candidates: C, budget: B, evaluate: E) -> Inquiry[C, B, E]:
    """Return an inquiry that logs every answer of a host; the log begins with the budget."""
    log = SearchLog([Exchange(BUDGET, (), budget, 0.0)])
    recorder: Any = LoggedHost(candidates, log, budget.clock)
    return Inquiry(recorder, budget, recorder.record("evaluate", evaluate), log)


class LoggedHost:
    """A host whose methods also log each question and its answer.

    The first argument of a method, the state of the search, follows from the answers before and is
    not logged.
    """

    def __init__(self, host: Any, log: SearchLog, clock: Callable[[], float]) -> None:
        self.host, self.log, self.clock = host, log, clock

    def __getattr__(self, kind: str) -> Callable[..., Any]:
        """Return the host's method of this name, logged."""
        return self.record(kind, getattr(self.host, kind))

    def record(self, kind: str, ask: Callable[..., Any]) -> Callable[..., Any]:
        """Return a function like ``ask`` that also logs each question and its answer."""

        def ask_and_log(state: Any, *question: Any) -> Any:
            answer = ask(state, *question)
            self.log.exchanges.append(Exchange(kind, question, answer, self.clock()))
            return answer

        return ask_and_log


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


def replay_search(search: Callable[[Any, Any, Any], tuple[R, SearchLog]], log: SearchLog) -> R:
    """Make the decisions of a search again, from its log alone, and return its result.

    Raises:
        UserError: the log is not of this search.
    """
    if not log.exchanges or log.exchanges[0].kind != BUDGET:
        raise UserError("the log of a search begins with its budget; this one does not")
    began, *rest = log.exchanges
    host: Any = Replay(SearchLog(rest))
    return search(host, replace(began.answer, clock=host.clock), host.evaluate)[0]


def split_searches(log: SearchLog) -> Iterator[SearchLog]:
    """Yield the log of each search in a log of several, in order."""
    starts = [n for n, one in enumerate(log.exchanges) if one.kind == BUDGET]
    for start, end in zip(starts, [*starts[1:], len(log.exchanges)], strict=True):
        yield SearchLog(log.exchanges[start:end])
