"""Comparison of strategies: which one is faster, and where they cross over."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from dualml.common.words import section_messages
from dualml.planning.cost.closed_form import gives_exact_sum
from dualml.planning.cost.units import format_bytes

#: Classical pairs whose crossover is reported.
PAIRS = (
    ("ring", "tree"),
    ("ring", "parameter_server"),
    ("ring", "all_gather"),
    ("halving_doubling", "ring"),
)
MIN_CROSSOVER_BYTES, MAX_CROSSOVER_BYTES = 1000, 10**12  # range of bytes searched for a crossover
#: Relative difference below which two times are equal.
TIME_RTOL = 1e-9
#: From this number on, ties over less than a thousandth of the numbers are left out.
NARROW = 1000


@dataclass(frozen=True)
class Range:
    """A range of numbers, ``first`` to ``last``, in which ``winner`` is faster; None: both are
    equally fast."""

    first: int
    last: int
    winner: str | None


def crossovers(
    a: str, b: str, low: int, high: int, seconds: Callable[[str, int], float]
) -> list[Range]:
    """Return the ranges of whole numbers (ranks or bytes) in which ``a`` or ``b`` is faster, in
    ascending order from ``low`` to ``high``.

    Evaluates powers of two, numbers one and a half times as large, and both ends, then bisects each
    interval in which the winner changes. A strategy that wins only between two of those points is
    missed. From 1,000 on, ties over less than a thousandth of the numbers are left out.

    Args:
        a, b: two names.
        low, high: smallest and largest number.
        seconds: function (name, number) → seconds.
    """

    def winner(x: int) -> str | None:
        one, other = seconds(a, x), seconds(b, x)
        if abs(one - other) <= TIME_RTOL * max(one, other):
            return None
        return a if one < other else b

    between = {m << e for e in range(high.bit_length() + 1) for m in (2, 3)}
    points = sorted({low, high} | {x for x in between if low < x < high})
    current = winner(low)
    ranges, start, before = [], low, low
    for x in points[1:]:
        while winner(x) != current:
            left, right = before, x  # the current winner wins at left, not at right
            while right - left > 1:
                middle = (left + right) // 2
                left, right = (middle, right) if winner(middle) == current else (left, middle)
            ranges.append(Range(start, left, current))
            start = before = right
            current = winner(right)
        before = x
    ranges.append(Range(start, high, current))
    # Curves that cross between whole numbers of bytes tie for a few of them.
    kept = list[Range]()
    for r in ranges:
        if r.winner is None and r.first >= NARROW and r.last - r.first <= r.first / NARROW:
            continue
        if kept and kept[-1].winner == r.winner:  # it won on both sides of a tie
            r = replace(kept.pop(), last=r.last)
        kept.append(r)
    return kept


def pairs_to_compare(chosen: Sequence[str]) -> list[tuple[str, str]]:
    """Return the pairs to compare: the two chosen strategies, or the classical pairs among any
    other number of them, perhaps none."""
    if len(chosen) == 2:
        return [(chosen[0], chosen[1])]
    return [pair for pair in PAIRS if set(pair) <= set(chosen)]


def fastest(seconds_by_strategy: dict[str, float]) -> list[str]:
    """Return the fastest of the strategies that give every rank the whole sum, if there are at
    least two; several names if they tie, none if all tie."""
    candidates = {
        name: value for name, value in seconds_by_strategy.items() if gives_exact_sum(name)
    }
    least = min(candidates.values(), default=0.0)
    names = [name for name, value in candidates.items() if value <= least * (1 + TIME_RTOL)]
    return names if len(names) < len(candidates) else []


#: Maximum number of changes that are listed; more are only counted.
MAX_LISTED_CHANGES = 3


def crossover_sentence(
    a: str, b: str, ranges: Sequence[Range], lang: str, *, what: str = "ranks", n: int = 0
) -> str:
    """Describe as a sentence where which of two strategies is faster.

    Args:
        a, b: names of the strategies.
        ranges: result of `crossovers`.
        lang: language of the sentence.
        what: ``ranks`` or ``bytes``.
        n: number of ranks, if bytes are compared.
    """
    words = section_messages(lang, "crossover")
    low, high = ranges[0].first, ranges[-1].last
    if len(ranges) == 1:
        key = "ranks.one" if what == "ranks" and low == high else f"{what}.all"
        where = words[key].format(low=f"{low:,}", high=f"{high:,}", n=f"{n:,}")
        winner = ranges[0].winner
        if winner is None:
            return words["same"].format(a=a, b=b, where=where)
        return words["always"].format(winner=winner, loser=b if winner == a else a, where=where)

    def number(x: int) -> str:
        return format_bytes(x) if what == "bytes" else f"{x:,}"

    parts = [
        words[f"{what}.{'from' if i else 'upto'}{'' if r.winner else '.same'}"].format(
            first=number(r.first if i else ranges[1].first), last=number(r.last), winner=r.winner
        )
        for i, r in enumerate(ranges)
    ]
    listed = words["comma"].join(parts)
    if len(parts) > MAX_LISTED_CHANGES + 1:
        listed = words["more"].format(first=words["comma"].join(parts[:2]), count=len(parts) - 1)
    given = words["given"].format(n=f"{n:,}") if what == "bytes" else ""
    return words["changes"].format(a=a, b=b, given=given, parts=listed)


def straggler_sentence(
    slowed: dict[str, float], healthy: dict[str, float], n: int, lang: str
) -> str | None:
    """Describe which strategy a straggler slows least and most, by ``slowed`` / ``healthy``, both
    strategy → seconds; None for fewer than two strategies."""
    factors = {name: slowed[name] / t for name, t in healthy.items() if t > 0}
    if len(factors) < 2:
        return None
    least, most = (f(factors, key=factors.__getitem__) for f in (min, max))
    return section_messages(lang, "crossover")["slow"].format(
        n=f"{n:,}", least=least, most=most, low=factors[least], high=factors[most]
    )
