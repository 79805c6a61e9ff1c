"""Rank the mutated runs that improve agreement: which explain the difference, which are listed."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from dualml.parity.causes.assessment import (
    GROUPS,
    MIN_GAINED_MODULES,
    NEARLY_EXPLAINED_SHARE,
    PARTLY_EXPLAINED_SHARE,
    AssessmentRecord,
    is_firm,
    select_explaining,
)
from dualml.parity.causes.candidate_filter import SearchStage
from dualml.parity.causes.explanation import DivergenceCause
from dualml.parity.causes.mutation import Mutation
from dualml.parity.causes.ranking_key import ranking_key

#: Relative distance up to which two numbers of one setting count as equal.
CLOSE = 1e-3
#: Minimum ratio of the largest to the smallest value of one setting that counts as a difference.
MIN_SPREAD_RATIO = 4.0
#: Maximum number of equally good explanations that are listed.
MAX_ALTERNATIVES = 4


def rank_explanations(
    now: AssessmentRecord, runs: Sequence[AssessmentRecord]
) -> list[AssessmentRecord]:
    """Return up to MAX_ALTERNATIVES runs that reach farthest and leave least, the simplest first.

    If the last mutations of some set a number that the other side's call states, only these remain.
    Of runs whose last mutations are of one kind and give the same results only the first remains.

    Args:
        now: the run before the last mutation was added.
    """
    runs = drop_undetermined(runs)
    if not runs:
        return []
    far = max(run.reach for run in runs)
    best = select_explaining(now, [run for run in runs if run.reach == far])
    best.sort(key=ranking_key)
    # Mutations with the same results are one explanation.
    seen: dict[str, AssessmentRecord] = {}
    for run in prefer_stated_values(best):
        change = run.changes[-1]
        known = [one.changes[-1] for one in seen.values()]
        if change not in known and not any(is_same_mutation(change, one) for one in known):
            seen.setdefault(change.kind + run.results, run)
    return list(seen.values())[:MAX_ALTERNATIVES]


def drop_undetermined(runs: Sequence[AssessmentRecord]) -> list[AssessmentRecord]:
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


def is_conclusive(now: AssessmentRecord, run: AssessmentRecord, stage: SearchStage) -> bool:
    """Return whether no further search stage is needed after this run.

    In a stage that changes settings alone only these count: another padding, a mode (text or flag)
    of a function that the other side calls at least as often, and a fraction that also occurs in
    the other side's call, because whole numbers occur everywhere. In other stages the mutation must
    be firm (`is_firm`), or explain nearly all.

    Args:
        now: the run without the last mutation.
        run: a run with a prior.
    """
    change, prior = run.changes[-1], run.prior
    assert prior is not None
    if not stage.settings:
        return is_firm(change) or run.leaves_at_most(NEARLY_EXPLAINED_SHARE, now)
    if isinstance(change.value, float):
        return not change.value.is_integer() and prior.stated
    mode = isinstance(change.value, bool | str) and not prior.rarer
    return change.action == "pad" or mode


def prefer_stated_values(best: Sequence[AssessmentRecord]) -> Sequence[AssessmentRecord]:
    """Return only the runs whose last mutation sets a number, other than 0, 1 and −1, that occurs
    among the settings of the other side's call; all runs if there is none."""
    found = [
        run
        for run in best
        if (run.changes[-1].action == "set" or run.changes[-1].kind == "constant")
        and run.prior is not None
        and run.prior.stated
    ]
    return found or best


def is_same_mutation(one: Mutation, other: Mutation) -> bool:
    """Return whether two mutations with float values differ at most in the value, by a relative
    distance of up to CLOSE; False for other values, even equal ones."""
    if not (isinstance(one.value, float) and isinstance(other.value, float)):
        return False
    close = abs(one.value - other.value) <= CLOSE * abs(other.value)
    return close and replace(one, value=0.0) == replace(other, value=0.0)


class Accepted(NamedTuple):
    """A cause, with the runs before and under it."""

    now: AssessmentRecord
    best: AssessmentRecord
    cause: DivergenceCause


def select_causes(steps: Sequence[Accepted]) -> list[DivergenceCause]:
    """Return the causes that count although both sides still differ.

    A mutation that only makes more operations match is half a cause and does not count; nor does
    one that can produce arbitrary numbers, unless all outputs and the loss, or most unmatched
    values, follow from it.
    """
    whole = computed = 0
    shared: set[int] = set()
    for number, (now, best, _) in enumerate(steps, 1):
        modules = best.reach[0] - now.reach[0]
        partly = best.leaves_at_most(PARTLY_EXPLAINED_SHARE, now)
        if modules > 0 or partly:
            whole = number
        if partly or modules >= MIN_GAINED_MODULES:
            shared.add(whole)
        if best.phase and GROUPS[best.phase] > 0 and best.step == 1:
            computed = number
    return [
        cause
        for number, (_, _, cause) in enumerate(steps[:whole], 1)
        if number <= computed or number in shared or is_firm(cause.alterations[0])
    ]
