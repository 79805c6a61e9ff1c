"""The four verdicts of a comparison, and their order: the only place that says which is worse."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, Protocol, TypeVar, get_args

Verdict = Literal["equal", "statistically equal", "not comparable", "different"]
#: From best to worst.
VERDICTS: tuple[str, ...] = get_args(Verdict)
#: Verdicts that say that both sides trained the same.
AGREEING = ("equal", "statistically equal")


class HasVerdict(Protocol):
    """Anything with a verdict."""

    @property
    def verdict(self) -> str:
        """One of `VERDICTS`; empty without one."""


V = TypeVar("V", bound=HasVerdict)


def verdict_rank(verdict: str | None) -> int:
    """Return how bad a verdict is: -1 for none, its index in `VERDICTS` (0 for ``equal``), and the
    largest number for one that this version does not know."""
    if not verdict:
        return -1
    return VERDICTS.index(verdict) if verdict in VERDICTS else len(VERDICTS)


def worst_verdict(verdicts: Iterable[str | None]) -> str:
    """Return the worst of several verdicts, of which empty ones and None do not count; one that
    this version does not know is worse than all others. Empty if none is left."""
    return max((v for v in verdicts if v), key=verdict_rank, default="")


def worst_comparison(comparisons: Iterable[V]) -> V | None:
    """Return the first of the comparisons that have the worst verdict of all; None if there are no
    comparisons."""
    return max(comparisons, key=lambda one: verdict_rank(one.verdict), default=None)
