"""Rank the mutated runs that improve agreement: which explain the difference, which are listed."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from dualml.parity.causes.candidate_filter import SearchStage
from dualml.parity.causes.context import numeric_constants
from dualml.parity.causes.mutation import Mutation
from dualml.parity.causes.ranking_key import CallCounts, ranking_key
from dualml.parity.causes.runs import (
    NEARLY_EXPLAINED_SHARE,
    MutatedRun,
    is_firm,
    run_results,
    select_explaining,
)
from dualml.parity.models.operations import Operation
from dualml.parity.models.trace import hash_arrays

#: Relative distance up to which two numbers of one setting count as equal.
CLOSE = 1e-3
#: Minimum ratio of the largest to the smallest value of one setting that counts as a difference.
MIN_SPREAD_RATIO = 4.0
#: Maximum number of equally good explanations that are listed.
MAX_ALTERNATIVES = 4


def rank_explanations(
    calls: CallCounts, other: Operation | None, now: MutatedRun, runs: Sequence[MutatedRun]
) -> list[MutatedRun]:
    """Return up to MAX_ALTERNATIVES runs that reach farthest and leave least, the simplest first.

    Of runs whose last mutations are of one kind and give the same results only the first remains.

    Args:
        other: the operation of the other side at which the two diverge; None if there is none.
        now: the run before the last mutation was added.
    """
    runs = drop_undetermined(runs)
    if not runs:
        return []
    far = max(run.reach for run in runs)
    best = select_explaining(now, [run for run in runs if run.reach == far])
    best.sort(key=partial(ranking_key, calls))
    # Mutations with the same results are one explanation.
    seen: dict[str, MutatedRun] = {}
    for run in prefer_stated_values(best, other):
        if not any(is_same_mutation(run.changes[-1], one.changes[-1]) for one in seen.values()):
            seen.setdefault(run.changes[-1].kind + hash_arrays(run_results(run.trace)), run)
    return list(seen.values())[:MAX_ALTERNATIVES]


def drop_undetermined(runs: Sequence[MutatedRun]) -> list[MutatedRun]:
    """Return the runs without those that replace a zero setting by a number, if numbers of very
    different size do equally well: then none of them is the explanation."""
    sizes: dict[Mutation, list[float]] = defaultdict(list)
    for run in runs:
        if is_replacing_zero(change := run.changes[-1]):
            sizes[replace(change, value=0.0)].append(abs(float(change.value)))
    any_does = {
        change
        for change, values in sizes.items()
        if min(values) > 0 and max(values) >= MIN_SPREAD_RATIO * min(values)
    }
    return [
        run
        for run in runs
        if not is_replacing_zero(run.changes[-1])
        or replace(run.changes[-1], value=0.0) not in any_does
    ]


def is_replacing_zero(change: Mutation) -> bool:
    """Return whether a mutation sets an attribute from zero to another number, or an optimizer's
    weight decay to any number."""
    numbers = [
        isinstance(one, int | float) and not isinstance(one, bool)
        for one in (change.value, change.old)
    ]
    if change.action == "optimizer":  # here `old` holds the parameters
        return numbers[0] and change.argument == "weight_decay"
    return change.action == "set" and all(numbers) and not change.old


def is_conclusive(
    now: MutatedRun, run: MutatedRun, stage: SearchStage, calls: CallCounts, other: Operation | None
) -> bool:
    """Return whether no further search stage is needed after this run.

    Among settings only another padding counts, a mode (text or flag) of a function that the other
    side calls at least as often, or a fraction that also occurs in the other side's call, because
    whole numbers occur everywhere. In other stages the mutation must be firm, or explain nearly
    all.
    """
    change = run.changes[-1]
    if not stage.settings:
        return is_firm(change) or run.leaves_at_most(NEARLY_EXPLAINED_SHARE, now)
    if isinstance(change.value, float):
        return not change.value.is_integer() and is_in_other_call(change, other)
    mode = isinstance(change.value, bool | str) and not calls.has_fewer(change.operation)
    return change.action == "pad" or mode


def is_in_other_call(change: Mutation, other: Operation | None) -> bool:
    """Return whether a number of the mutation occurs in the other side's call; 0, 1 and −1 do not
    count."""
    numbers = {} if other is None else {*numeric_constants(other.attributes)} - {-1.0, 0.0, 1.0}
    return any(value in numbers for value in numeric_constants({"": change.value}))


def prefer_stated_values(
    best: Sequence[MutatedRun], other: Operation | None
) -> Sequence[MutatedRun]:
    """Return only the runs whose last mutation sets a number, other than 0, 1 and −1, that occurs
    among the settings of the other side's call; all runs if there is none."""
    found = [
        run
        for run in best
        if (run.changes[-1].action == "set" or run.changes[-1].kind == "constant")
        and is_in_other_call(run.changes[-1], other)
    ]
    return found or best


def is_same_mutation(one: Mutation, other: Mutation) -> bool:
    """Return whether two mutations with float values differ at most in the last digits of the
    value; False for other values, even equal ones."""
    if not (isinstance(one.value, float) and isinstance(other.value, float)):
        return False
    close = abs(one.value - other.value) <= CLOSE * abs(other.value)
    return close and replace(one, value=0.0) == replace(other, value=0.0)
