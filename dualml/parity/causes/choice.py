"""Rank the mutated runs that improve agreement: which explain the difference, which are listed."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from dualml.parity.causes.alteration import Alteration
from dualml.parity.causes.preference import Calls, preference
from dualml.parity.causes.runs import ALMOST, Run, computed, explaining, firm
from dualml.parity.causes.screen import Stage
from dualml.parity.causes.surroundings import constants
from dualml.parity.models.operations import Operation
from dualml.parity.models.trace import digests

#: Relative distance up to which two numbers of one setting count as equal.
CLOSE = 1e-3
#: Minimum ratio of the largest to the smallest value of one setting that counts as a difference.
SPREAD = 4.0
#: Maximum number of equally good explanations that are listed.
LISTED = 4


def best_of(calls: Calls, other: Operation | None, now: Run, runs: Sequence[Run]) -> list[Run]:
    """Return the runs that explain most and leave least, the simplest first.

    Args:
        other: the operation of the other side at which the two diverge.
    """
    runs = determined(runs)
    if not runs:
        return []
    far = max(run.reach for run in runs)
    best = explaining(now, [run for run in runs if run.reach == far])
    best.sort(key=partial(preference, calls))
    # Mutations with the same results are one explanation.
    seen: dict[str, Run] = {}
    for run in confirmed(best, other):
        if not any(same(run.changes[-1], one.changes[-1]) for one in seen.values()):
            seen.setdefault(run.changes[-1].kind + digests(computed(run.trace)), run)
    return list(seen.values())[:LISTED]


def determined(runs: Sequence[Run]) -> list[Run]:
    """Remove runs that replace a zero setting by a number, if numbers of very different size do
    equally well: then none of them is the explanation."""
    sizes: dict[Alteration, list[float]] = defaultdict(list)
    for run in runs:
        if of_nothing(change := run.changes[-1]):
            sizes[replace(change, value=0.0)].append(abs(float(change.value)))
    any_does = {
        change
        for change, values in sizes.items()
        if min(values) > 0 and max(values) >= SPREAD * min(values)
    }
    return [
        run
        for run in runs
        if not of_nothing(run.changes[-1]) or replace(run.changes[-1], value=0.0) not in any_does
    ]


def of_nothing(change: Alteration) -> bool:
    """Whether a mutation replaces a zero by another number."""
    numbers = [
        isinstance(one, int | float) and not isinstance(one, bool)
        for one in (change.value, change.old)
    ]
    if change.action == "optimizer":  # here `old` holds the parameters
        return numbers[0] and change.argument == "weight_decay"
    return change.action == "set" and all(numbers) and not change.old


def settled(now: Run, run: Run, stage: Stage, calls: Calls, other: Operation | None) -> bool:
    """Whether no further search stage is needed after this run.

    Among settings only a mode counts, or a fraction that also occurs in the other side's call,
    because whole numbers occur everywhere.
    """
    change = run.changes[-1]
    if not stage.settings:
        return firm(change) or run.leaves(ALMOST, now)
    if isinstance(change.value, float):
        return not change.value.is_integer() and said(change, other)
    mode = isinstance(change.value, bool | str) and not calls.fewer(change.operation)
    return change.action == "pad" or mode


def said(change: Alteration, other: Operation | None) -> bool:
    """Whether a number of the mutation occurs in the other side's call; 0, 1 and −1 do not
    count."""
    numbers = {} if other is None else {*constants(other.attributes)} - {-1.0, 0.0, 1.0}
    return any(value in numbers for value in constants({"": change.value}))


def confirmed(best: Sequence[Run], other: Operation | None) -> Sequence[Run]:
    """Return only the runs whose value occurs in the other side's call, or all if none does."""
    found = [
        run
        for run in best
        if (run.changes[-1].action == "set" or run.changes[-1].kind == "constant")
        and said(run.changes[-1], other)
    ]
    return found or best


def same(one: Alteration, other: Alteration) -> bool:
    """Whether two mutations differ at most in the last digits of a number."""
    if not (isinstance(one.value, float) and isinstance(other.value, float)):
        return False
    close = abs(one.value - other.value) <= CLOSE * abs(other.value)
    return close and replace(one, value=0.0) == replace(other, value=0.0)
