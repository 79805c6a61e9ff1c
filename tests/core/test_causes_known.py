"""Known mistakes: which mutations make them, that they come first, and that each has a report."""

from __future__ import annotations

from typing import Any

import pytest

from dualml.parity.causes.assessment import AssessmentRecord
from dualml.parity.causes.exchanged_settings import exchanged_settings
from dualml.parity.causes.known_mistakes import (
    exchanges_comparisons,
    find_mistake,
    known_mistakes,
    put_mistakes_first,
)
from dualml.parity.causes.mutation import Mutation
from dualml.parity.causes.ranking_key import CallCounts, find_prior, is_odd_scale, ranking_key
from dualml.parity.causes.tables import OPERATOR_FUNCTIONS
from dualml.parity.models.operations import Operation, SourceLocation

GELU = Mutation("attribute", "set", (0,), "gelu", "approximate", "tanh", "none")
SHIFT = Mutation("constant", "input", (0,), "__mul__", 1, ("shift", 1.0))
OTHER = Mutation("operand", "operand", (0,), "mul", 1, "op:3", "op:4")


def test_there_are_twenty_with_a_report_each() -> None:
    rows = [one for some in known_mistakes().values() for one in some]
    assert len({one.name for one in rows}) == len(rows) >= 20
    assert all(one.report.startswith("https://") for one in rows)
    assert not {name for one in rows for name in one.functions} & OPERATOR_FUNCTIONS.keys()


@pytest.mark.parametrize(
    ("change", "name"),
    [
        (GELU, "gelu-form"),
        (SHIFT, "weight-from-one"),
        (Mutation("layout", "rotary_halves", (2, 5)), "rotary-halves"),
        (Mutation("attribute", "set", (0,), "gelu", "other", 1), None),
        (Mutation("constant", "input", (0,), "mul", 1, ("scale", 2.0)), None),
        (OTHER, None),
    ],
)
def test_a_mutation_makes_a_known_mistake_or_none(change: Mutation, name: str | None) -> None:
    found = find_mistake(change)
    assert (found and found.name) == name


def test_known_mistakes_come_first() -> None:
    assert list(put_mistakes_first([OTHER, SHIFT, GELU])) == [SHIFT, GELU, OTHER]


def rank(change: Mutation) -> Any:
    calls = CallCounts([], [])
    run = AssessmentRecord((change,), "equal", "", 1, (1, 0), 0, 0.0)
    prior = find_prior(calls, lambda: None, change)
    return ranking_key(AssessmentRecord(**{**vars(run), "prior": prior}))


def test_a_known_mistake_is_likelier_than_another_operand_and_less_than_a_call_left_out() -> None:
    dropped = Mutation("missing", "drop", (0,), "mul", 0)
    assert rank(dropped) < rank(SHIFT) < rank(OTHER)


def test_one_comparison_for_another_may_be_a_coincidence() -> None:
    change = Mutation("mask", "function", (0,), "__ne__", "", "ge", "ne")
    assert exchanges_comparisons(change)
    assert not exchanges_comparisons(Mutation("function", "function", (0,), "add", "", "sub"))
    assert rank(OTHER) < rank(change)


def test_a_threshold_of_a_comparison_that_the_other_side_never_makes_is_not_stated() -> None:
    ours, theirs = (
        Operation(1, name, ("input:0",), {"other": number}, ((2, 6),), None)
        for name, number in (("gt", 1), ("masked_fill", -100))
    )
    change = Mutation("constant", "set", (1,), "gt", "other", -100, 1)
    prior = find_prior(CallCounts([ours], [theirs]), lambda: theirs, change)
    assert not prior.stated
    dropped = find_prior(
        CallCounts([ours], [theirs]),
        lambda: theirs,
        Mutation("missing", "drop", (2,), "__and__", 0),
    )
    assert dropped.rank < prior.rank
    same = find_prior(CallCounts([ours], [ours]), lambda: theirs, change)
    assert same.stated


def operation(number: int, line: int, **attributes: Any) -> Operation:
    place = SourceLocation("/net.py", line, "f(x)")
    return Operation(number, "conv2d", ("input:0",), attributes, ((2, 6),), place)


def test_settings_are_exchanged_between_neighbours_of_every_block() -> None:
    calls = [operation(n, n % 2, stride=1 + n % 2, padding=[3, 3], dilation=1) for n in range(4)]
    found = list(exchanged_settings(calls, calls[0]))
    pairs = [(one.argument, one.value, one.old, one.sites) for one in found if one.old is not None]
    assert pairs[0] == ("stride", 2, 1, (0, 1, 2, 3))
    assert not [one for one in found if one.argument == "padding"]
    own = [one.value for one in exchanged_settings(calls, calls[1]) if one.old is None]
    assert own == [("stride", "dilation")]


@pytest.mark.parametrize(
    ("change", "odd"),
    [
        (Mutation("constant", "output", (1,), "mean", "", ("scale", -0.0424173)), True),
        (Mutation("constant", "output", (1,), "mean", "", ("scale", 1 / 17)), False),
        (Mutation("constant", "output", (1,), "mean", "", ("scale", 2.0)), False),
        (Mutation("constant", "input", (1,), "add", 0, ("shift", 0.123456)), False),
        (Mutation("function", "function", (1,), "relu", "", "tanh"), False),
    ],
)
def test_a_scale_that_nobody_writes_is_odd(change: Mutation, odd: bool) -> None:
    assert is_odd_scale(change) == odd
    calls = CallCounts((), ())
    prior = find_prior(calls, lambda: None, change)
    other = find_prior(calls, lambda: None, Mutation("dtype", "output", (1,), "mean"))
    assert ((prior.foreign, prior.rank) > (True, other.rank)) == odd
