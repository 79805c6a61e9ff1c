"""Of the runs that carry two sides farther together, which explain, and which are listed."""

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

#: Numbers of one setting that are no farther apart are one.
CLOSE = 1e-3
#: Numbers that are so many times as large as each other are no longer one.
SPREAD = 4.0
#: Of equally good explanations, how many are listed.
LISTED = 4


def best_of(calls: Calls, other: Operation | None, now: Run, runs: Sequence[Run]) -> list[Run]:
    """Those that carry farthest and leave least, the simplest first.

    Args:
        other: the operation of the other side at which the two part.
    """
    runs = determined(runs)
    if not runs:
        return []
    far = max(run.reach for run in runs)
    best = explaining(now, [run for run in runs if run.reach == far])
    best.sort(key=partial(preference, calls))
    # Other words for the same numbers are one explanation.
    seen: dict[str, Run] = {}
    for run in confirmed(best, other):
        if not any(same(run.changes[-1], one.changes[-1]) for one in seen.values()):
            seen.setdefault(run.changes[-1].kind + digests(computed(run.trace)), run)
    return list(seen.values())[:LISTED]


def determined(runs: Sequence[Run]) -> list[Run]:
    """Without settings of which any number would do, where there was none: what numbers of several
    sizes explain, none of them does."""
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
    """Whether a number takes the place of nought."""
    numbers = [
        isinstance(one, int | float) and not isinstance(one, bool)
        for one in (change.value, change.old)
    ]
    if change.action == "optimizer":  # there, `old` are the parameters
        return numbers[0] and change.argument == "weight_decay"
    return change.action == "set" and all(numbers) and not change.old


def settled(now: Run, run: Run, stage: Stage, calls: Calls, other: Operation | None) -> bool:
    """Whether no further stage is needed: of settings a mode, or a fraction that the port's
    own call has; whole numbers stand everywhere."""
    change = run.changes[-1]
    if not stage.settings:
        return firm(change) or run.leaves(ALMOST, now)
    if isinstance(change.value, float):
        return not change.value.is_integer() and said(change, other)
    mode = isinstance(change.value, bool | str) and not calls.fewer(change.operation)
    return change.action == "pad" or mode


def said(change: Alteration, other: Operation | None) -> bool:
    """Whether a number of an alteration stands in the other side's own call; nought and one
    do in many."""
    numbers = {} if other is None else {*constants(other.attributes)} - {-1.0, 0.0, 1.0}
    return any(value in numbers for value in constants({"": change.value}))


def confirmed(best: Sequence[Run], other: Operation | None) -> Sequence[Run]:
    """Settings whose value stands in the other side's own call, where there are any."""
    found = [
        run
        for run in best
        if (run.changes[-1].action == "set" or run.changes[-1].kind == "constant")
        and said(run.changes[-1], other)
    ]
    return found or best


def same(one: Alteration, other: Alteration) -> bool:
    """Whether two alterations are one, but for the last digits of a number."""
    if not (isinstance(one.value, float) and isinstance(other.value, float)):
        return False
    close = abs(one.value - other.value) <= CLOSE * abs(other.value)
    return close and replace(one, value=0.0) == replace(other, value=0.0)
