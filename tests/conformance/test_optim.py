"""Every update rule, in every mode of every backend, against the float64 recurrence: weights and
state."""

from __future__ import annotations

from dataclasses import fields, replace
from functools import cache
from typing import Any

import numpy as np
import pytest
from conformance.backends import (
    REFEREE,
    adapter_of,
    device_of,
    or_skipped,
    require,
    tested_backends,
)
from conformance.rules import (
    CANCELS,
    EXACT,
    FEW,
    SCHEDULED,
    SITUATIONS,
    START,
    VARIANTS,
    assert_same,
    noise,
    rates_of,
    recurrence,
    tolerance,
)

from dualml.algorithms.optim import RULES, OptimizerSpec
from dualml.backend import backends
from dualml.backend.conformance import OptimizerResult, Optimizers

SHAPES = {name: p.shape for name, p in START.items()}
MODES = [(name, mode) for name in tested_backends() for mode in adapter_of(name).MODES]


def mode_of(name: str, mode: str) -> Any:
    return adapter_of(name).MODES[mode]


def rules_of(name: str, mode: str) -> dict[str, OptimizerSpec]:
    chosen = FEW if mode_of(name, mode).costly else VARIANTS
    return {rule: VARIANTS[rule] for rule in chosen}


@cache
def optimizers(name: str, mode: str, scheduled: bool) -> Optimizers:
    """Make all rules at once: a framework that compiles them compiles them together."""
    require(backends()[name].framework)
    rules = rules_of(name, mode)
    if not scheduled:
        return adapter_of(name).optimizers(rules, SHAPES, mode, device=device_of(name))
    rules = {rule: VARIANTS[rule] for rule in SCHEDULED}
    steps = steps_of(name, mode, "noise")
    rates = {rule: rates_of(VARIANTS[rule], steps) for rule in rules}
    return adapter_of(name).optimizers(rules, SHAPES, mode, rates, device_of(name))


def steps_of(name: str, mode: str, situation: str) -> int:
    return min(SITUATIONS[situation].steps, mode_of(name, mode).steps)


@cache
def ends(
    name: str, mode: str, situation: str, scheduled: bool = False
) -> dict[str, OptimizerResult]:
    s = SITUATIONS[situation]
    own = optimizers(name, mode, scheduled)
    return own.run(s.start, s.gradient, steps_of(name, mode, situation))


def bounds(name: str, mode: str, situation: str) -> tuple[float, float]:
    return EXACT if mode_of(name, mode).dtype == "float64" else SITUATIONS[situation].tolerance


CASES = [
    (name, mode, situation, rule)
    for name, mode in MODES
    for situation in (["noise"] if mode_of(name, mode).costly else SITUATIONS)
    for rule in rules_of(name, mode)
]


@pytest.mark.parametrize(
    ("name", "mode", "situation", "rule"), or_skipped(CASES, REFEREE.name, "", "", "")
)
def test_a_rule_follows_its_recurrence(name: str, mode: str, situation: str, rule: str) -> None:
    s, steps = SITUATIONS[situation], steps_of(name, mode, situation)
    expected = recurrence(VARIANTS[rule], s.start, s.gradient, steps)
    bound = tolerance(VARIANTS[rule], bounds(name, mode, situation))
    assert_same(ends(name, mode, situation)[rule], expected, bound)


@pytest.mark.parametrize("rule", SCHEDULED)
@pytest.mark.parametrize(
    ("name", "mode"),
    or_skipped([case for case in MODES if not mode_of(*case).costly], REFEREE.name, ""),
)
def test_a_rule_follows_rates_that_change(name: str, mode: str, rule: str) -> None:
    steps = steps_of(name, mode, "noise")
    rates = rates_of(VARIANTS[rule], steps)
    expected = recurrence(VARIANTS[rule], START, noise, steps, rates)
    bound = tolerance(VARIANTS[rule], bounds(name, mode, "noise"))
    assert_same(ends(name, mode, "noise", scheduled=True)[rule], expected, bound)


# The table itself and the comparison are tested too: a table that misses a field, or a helper
# that accepts everything, would let anything pass.


def test_every_rule_and_field_is_in_the_table() -> None:
    assert {type(rule) for rule in VARIANTS.values()} == set(RULES.values())
    for kind in RULES.values():
        rules = [rule for rule in VARIANTS.values() if type(rule) is kind]
        for field in fields(kind):
            if field.name != "lr":
                values = {getattr(rule, field.name) for rule in rules}
                assert values - {field.default}, f"{kind.name}.{field.name} is never varied"


@pytest.mark.parametrize("steps", sorted({steps_of(*case, "noise") for case in MODES} | {30}))
def test_every_variant_is_distinguishable(steps: int) -> None:
    """Variants differ by more than the tolerance, otherwise comparing them would show nothing."""
    ends = {name: recurrence(rule, START, noise, steps) for name, rule in VARIANTS.items()}
    for a in VARIANTS:
        for b in VARIANTS:
            if a < b and {a, b} != {"gd", "sgd"}:
                one, other = ends[a].parameters, ends[b].parameters
                gap = max(np.abs(one[n] - other[n]).max() / np.abs(START[n]).max() for n in START)
                assert gap > 10 * CANCELS, (a, b, gap)


@pytest.mark.parametrize(
    "change",
    [{"eps": 1.02e-3}, {"betas": (0.8, 0.951)}, {"eps_form": "hat"}, {"bias_correction": False}],
    ids=lambda change: next(iter(change)),
)
def test_the_comparison_sees_a_changed_hyperparameter(change: dict) -> None:
    rule = VARIANTS["adam-eps"]
    expected = recurrence(rule, START, noise, 30)
    with pytest.raises(AssertionError):
        assert_same(recurrence(replace(rule, **change), START, noise, 30), expected, CANCELS)


def test_the_comparison_sees_a_flipped_sign_in_weights_and_in_state() -> None:
    end = recurrence(VARIANTS["adam-eps"], START, noise, 30)
    assert_same(end, end, 0.0)
    flipped = {n: -a for n, a in end.parameters.items()}
    with pytest.raises(AssertionError):
        assert_same(OptimizerResult(flipped, end.state), end, CANCELS)
    state = {**end.state, "exp_avg": {n: -a for n, a in end.state["exp_avg"].items()}}
    with pytest.raises(AssertionError):
        assert_same(OptimizerResult(end.parameters, state), end, CANCELS)
    with pytest.raises(AssertionError):
        assert_same(
            OptimizerResult(end.parameters, {"exp_avg": end.state["exp_avg"]}), end, CANCELS
        )
