"""Search for the cause of a difference between runs: hypotheses, what each explains, the best ones.

Known mistakes are judged first; only if none explains every recorded update, hypotheses that take
longer. The ranking reads nothing but the log, so that a log alone gives the same causes again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any, Literal, Protocol

from dualml.common.json_types import JsonObject
from dualml.parity.engine import make_clock, replay_search, split_searches, start_inquiry
from dualml.parity.hypothesis import Hypothesis, Patch
from dualml.parity.search_log import SearchLog, read_log

#: Scores closer than this count as equal: the simpler hypothesis comes first.
SCORE_TOLERANCE = 0.005
#: Sources of hypotheses, in the order in which they are asked.
HypothesisSource = Literal["known", "last"]
SOURCES: tuple[HypothesisSource, ...] = ("known", "last")


@dataclass(frozen=True)
class JudgingBudget:
    """The limits of one search.

    Attributes:
        hypotheses: largest number of hypotheses of a source that are judged.
        clock: returns the seconds since the search began.
    """

    hypotheses: int = 2000
    clock: Callable[[], float] = field(default_factory=make_clock, compare=False)


@dataclass(frozen=True)
class HypothesisScore:
    """A hypothesis and what it explains.

    Attributes:
        cause, detail: its name and numbers.
        score: the share of the difference that it explains.
        fits: the deviating updates, if it explains each of them to rounding; else empty.
        disturbing: whether it changes updates that do not deviate.
        fitted: numbers that were fitted.
        cost: how unusual it is, of hypotheses that explain equally much.
        digest: hash of what its update computes from random tensors, if it fits; else empty.
    """

    cause: str
    detail: dict[str, Any]
    score: float
    fits: list[int]
    disturbing: bool
    fitted: int
    cost: int
    digest: str = ""

    @property
    def complexity(self) -> int:
        """Number of assumptions: a fitted number counts as much as two unusual changes."""
        return 2 * self.fitted + self.cost

    def describe(self) -> JsonObject:
        """Return what a finding says of it: ``cause``, ``score``, ``detail`` and ``fits``."""
        return {name: getattr(self, name) for name in ("cause", "score", "detail", "fits")}


class HypothesisHost(Protocol):
    """A host that knows what could be wrong in an experiment."""

    def propose(self, log: SearchLog, source: HypothesisSource) -> tuple[Hypothesis, ...]:
        """Return the hypotheses of a source, likely ones first."""
        ...


#: (log, hypothesis) → what it explains; None if it cannot be computed.
Judge = Callable[[SearchLog, Hypothesis], HypothesisScore | None]


def search(
    candidates: HypothesisHost, budget: JudgingBudget, evaluate: Judge
) -> tuple[list[HypothesisScore], SearchLog]:
    """Judge the hypotheses of one source after the other, until a source has one that explains
    every deviating update.

    Returns:
        The best judgement of each cause, best first, and the log of the search.
    """
    ask = start_inquiry(candidates, budget, evaluate)
    for source in SOURCES:
        guesses = ask.candidates.propose(ask.log, source)
        scores = (ask.evaluate(ask.log, guess) for guess in guesses)
        judged = list(islice((one for one in scores if one is not None), budget.hypotheses))
        if any(one.fits for one in judged):
            break
    return rank_scores([one for one in ask.log.answers("evaluate") if one is not None]), ask.log


def rank_scores(scores: Sequence[HypothesisScore]) -> list[HypothesisScore]:
    """Return the best judgement of each cause, best first; causes that explain nothing are left
    out, and changes of lines stay, each a cause of its own.

    What explains every update comes before what does not; then, among equal scores, what leaves
    correct updates unchanged, and what assumes less.
    """
    best: dict[Any, HypothesisScore] = {}
    for one in scores:
        key = (one.cause, one.detail.get("instead"))
        if key not in best or is_better(one, best[key]):
            best[key] = one
    top = max((one.score for one in best.values()), default=0.0)

    def sort_key(one: HypothesisScore) -> tuple[Any, ...]:
        """Return the sort key of a judgement."""
        alike = one.score >= top - SCORE_TOLERANCE
        simple = (one.disturbing, one.complexity) if one.fits or alike else (False, 0)
        return not one.fits, not (one.fits or alike), *simple, -one.score

    ranked, digests = sorted((o for o in best.values() if o.score > 0), key=sort_key), set[str]()
    different = []
    for one in ranked:  # of two that compute the same, the better name stays
        if one.digest not in digests:
            different.append(one)
        digests |= {one.digest} - {""}
    return different


def is_better(one: HypothesisScore, known: HypothesisScore) -> bool:
    """Return whether a judgement is better than a known one of the same cause."""
    if bool(one.fits) != bool(known.fits):
        return bool(one.fits)
    if one.fits or abs(one.score - known.score) < SCORE_TOLERANCE / 10:
        simple = (one.disturbing, one.complexity)
        return simple < (known.disturbing, known.complexity)
    return one.score > known.score


def replay_all(log: SearchLog) -> list[list[HypothesisScore]]:
    """Make the decisions of every search in a log again, and return the ranking of each.

    Raises:
        UserError: the log is not of this search.
    """
    return [replay_search(search, one) for one in split_searches(log)]


def read_searches(path: Path) -> SearchLog:
    """Read the log of the searches of `dualml find`.

    Raises:
        UserError: the file is not such a log.
    """
    return read_log(path, (Hypothesis, HypothesisScore, JudgingBudget, Patch))
