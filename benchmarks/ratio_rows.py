"""Rows of the benchmarks' results: two figures, their ratio and its target."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from dualml.common.json_types import JsonObject
from dualml.interface.bench.timing import Ratio, Times, ratio_quartiles


@dataclass(frozen=True, kw_only=True)
class RatioRow:
    """One line of the results.

    Attributes:
        section: the table of this row.
        what, against: what was measured, and what it is compared with.
        ours, other: the two figures in ``unit``; ``other`` is None if there is only a limit.
        ratio: ours / other; below 1, ours is faster or smaller.
        target: largest acceptable ``ratio`` (or ``ours``, without a ratio); None for no target.
        note: a note for readers; for a missed target, the reason.
    """

    section: str
    what: str
    against: str
    ours: float
    other: float | None
    unit: str
    ratio: Ratio | None
    target: float | None = None
    note: str = ""

    @property
    def meets_target(self) -> bool | None:
        """Whether the target is met; None without a target."""
        if self.target is None:
            return None
        return (self.ratio.median if self.ratio else self.ours) <= self.target

    def with_reason(self, reason: str) -> RatioRow:
        """Return the row with the reason as its note if its target is missed; else the row
        itself."""
        return replace(self, note=reason) if self.meets_target is False else self

    def describe(self) -> JsonObject:
        """Return the row as a JSON-serializable dict, with `meets_target` as ``met``."""
        return {**asdict(self), "met": self.meets_target}


def fastest_variant(times: Times, names: Sequence[str]) -> str:
    """Return the one of ``names`` with the smallest median time: the strongest competitor."""
    return min(names, key=lambda name: statistics.median(times[name]))


def make_row(
    section: str,
    what: str,
    against: str,
    times: Times,
    ours: str,
    other: str,
    **more: Any,
) -> RatioRow:
    """Make a row in milliseconds from two variants' times in milliseconds."""
    return RatioRow(
        section=section,
        what=what,
        against=against,
        ours=statistics.median(times[ours]),
        other=statistics.median(times[other]),
        unit="ms",
        ratio=ratio_quartiles(times[ours], times[other]),
        **more,
    )
