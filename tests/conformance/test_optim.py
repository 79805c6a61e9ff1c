"""Every update rule, on every backend, against the float64 recurrence: weights and state."""

from __future__ import annotations

from dataclasses import fields, replace

import numpy as np
import pytest
from backends import (
    Gradient,
    Params,
    Run,
    assert_same,
    run_mindspore,
    run_numpy,
    run_torch,
)

from dualml.optim import GD, RULES, SGD, Adagrad, Adam, AdamW, RMSprop, Rule, Schedule

# Values that tell variants apart: eps 1e-3, not 1e-8; betas whose bias correction matters.
VARIANTS: dict[str, Rule] = {
    "gd": GD(lr=0.05),
    "sgd": SGD(lr=0.05),
    "sgd-decay": SGD(lr=0.05, weight_decay=0.1),
    "sgd-momentum": SGD(lr=0.05, momentum=0.8),
    "sgd-dampening": SGD(lr=0.05, momentum=0.8, dampening=0.4, weight_decay=0.1),
    "sgd-nesterov": SGD(lr=0.05, momentum=0.8, nesterov=True, weight_decay=0.1),
    "adam": Adam(lr=0.01),
    "adam-eps": Adam(lr=0.01, betas=(0.8, 0.95), eps=1e-3),
    "adam-hat": Adam(lr=0.01, betas=(0.8, 0.95), eps=1e-3, eps_form="hat"),
    "adam-biased": Adam(lr=0.01, eps=1e-3, bias_correction=False),
    "adam-decay": Adam(lr=0.01, eps=1e-3, weight_decay=0.1),
    "adam-no-averages": Adam(lr=0.01, betas=(0.0, 0.0), eps=1e-3),
    "adamw": AdamW(lr=0.01, eps=1e-3, weight_decay=0.1),
    "adamw-biased": AdamW(lr=0.01, betas=(0.8, 0.95), eps=1e-3, bias_correction=False),
    "adamw-hat": AdamW(lr=0.01, eps=1e-3, eps_form="hat", weight_decay=0.1),
    "rmsprop": RMSprop(lr=0.01, alpha=0.9, eps=1e-3),
    "rmsprop-momentum": RMSprop(lr=0.01, alpha=0.9, eps=1e-3, momentum=0.8),
    "rmsprop-centered": RMSprop(lr=0.01, alpha=0.9, eps=1e-3, centered=True, weight_decay=0.1),
    "rmsprop-all": RMSprop(lr=0.01, alpha=0.9, eps=1e-3, centered=True, momentum=0.8),
    "adagrad": Adagrad(lr=0.05, eps=1e-3),
    "adagrad-all": Adagrad(
        lr=0.05, eps=1e-3, lr_decay=0.1, initial_accumulator=0.1, weight_decay=0.1
    ),
}
STEPS = 30
# float32 rounding: 30 steps of a few operations at 6e-8 each, which add up to at most 30·4·6e-8 =
# 7e-6 and, being of both signs, to a few 1e-7 in practice. Centered RMSprop cancels under the root.
FLOAT32, CANCELS, FLOAT64 = 2e-6, 2e-5, 1e-12

START: Params = {
    "conv.weight": np.random.default_rng(1).normal(size=(4, 2, 3, 3)),
    "bn.gamma": np.random.default_rng(2).normal(size=(17,)),
    "bn.beta": np.random.default_rng(3).normal(size=(1,)),
}
START = {n: a.astype(np.float32).astype(np.float64) for n, a in START.items()}


def noise(params: Params, step: int) -> Params:
    """Random gradients that do not depend on the parameters; some tiny, where epsilon decides."""
    rng = np.random.default_rng(100 + step)
    scale = {"conv.weight": 1.0, "bn.gamma": 1e-3, "bn.beta": 0.3}
    return {
        n: (scale[n] * rng.normal(size=p.shape)).astype(np.float32).astype(np.float64)
        for n, p in params.items()
    }


def bowl(params: Params, step: int) -> Params:
    """Gradient of ½ Σ cᵢθᵢ² with curvatures c from 0.1 to 3: errors feed back."""
    return {n: np.linspace(0.1, 3.0, p.size).reshape(p.shape) * p for n, p in params.items()}


GRADIENTS: dict[str, Gradient] = {"noise": noise, "bowl": bowl}


def tolerance(rule: Rule) -> float:
    return CANCELS if getattr(rule, "centered", False) else FLOAT32


@pytest.fixture(params=GRADIENTS)
def gradient(request: pytest.FixtureRequest) -> Gradient:
    return GRADIENTS[request.param]


@pytest.fixture(params=VARIANTS)
def rule(request: pytest.FixtureRequest) -> Rule:
    return VARIANTS[request.param]


def test_torch_float32(rule: Rule, gradient: Gradient) -> None:
    expected = run_numpy(rule, START, gradient, STEPS)
    assert_same(run_torch(rule, START, gradient, STEPS), expected, tolerance(rule))


def test_torch_float64(rule: Rule, gradient: Gradient) -> None:
    expected = run_numpy(rule, START, gradient, STEPS)
    found = run_torch(rule, START, gradient, STEPS, dtype="float64")
    assert_same(found, expected, 1e-10 if getattr(rule, "centered", False) else FLOAT64)


@pytest.mark.parametrize("graph", [True, False], ids=["graph", "pynative"])
def test_mindspore(rule: Rule, gradient: Gradient, graph: bool) -> None:
    expected = run_numpy(rule, START, gradient, STEPS)
    assert_same(run_mindspore(rule, START, gradient, STEPS, graph=graph), expected, tolerance(rule))


@pytest.mark.parametrize("backend", ["torch", "mindspore"])
def test_first_updates_from_zero(rule: Rule, backend: str) -> None:
    """From zero the parameters *are* the updates: every digit of them counts, and the bias
    corrections, where 1 − βᵗ cancels, are at their worst. Of one sign, updates do not cancel."""

    def positive(params: Params, step: int) -> Params:
        return {n: np.abs(g) for n, g in noise(params, step).items()}

    zero = {n: np.zeros_like(p) for n, p in START.items()}
    expected = run_numpy(rule, zero, positive, 2)
    found = {"torch": run_torch, "mindspore": run_mindspore}[backend](rule, zero, positive, 2)
    assert_same(found, expected, 1e-5 if getattr(rule, "centered", False) else 5e-7)


@pytest.mark.parametrize("name", ["sgd-nesterov", "adam-decay", "adamw", "rmsprop-all"])
def test_torch_compiled(name: str) -> None:
    rule = VARIANTS[name]
    expected = run_numpy(rule, START, noise, STEPS)
    assert_same(run_torch(rule, START, noise, STEPS, compiled=True), expected, tolerance(rule))


@pytest.mark.parametrize("backend", ["torch", "mindspore"])
@pytest.mark.parametrize("name", ["sgd-dampening", "adamw", "adagrad-all"])
def test_schedule(backend: str, name: str) -> None:
    """Rates that change from step to step, down to 0 at the end of the cosine."""
    rule = VARIANTS[name]
    factors = Schedule(kind="cosine", total=STEPS - 1, warmup=5).factors(STEPS)
    rates = [rule.lr * factor for factor in factors]
    run = {"torch": run_torch, "mindspore": run_mindspore}[backend]
    expected = run_numpy(rule, START, noise, STEPS, rates)
    assert_same(run(rule, START, noise, STEPS, rates), expected, FLOAT32)


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


def test_every_variant_is_distinguishable() -> None:
    """Variants end further apart than the tolerance, or comparing them would show nothing."""
    ends = {name: run_numpy(rule, START, noise, STEPS) for name, rule in VARIANTS.items()}
    for a in VARIANTS:
        for b in VARIANTS:
            if a < b and {a, b} != {"gd", "sgd"}:
                gap = max(
                    np.abs(ends[a].params[n] - ends[b].params[n]).max() / np.abs(START[n]).max()
                    for n in START
                )
                assert gap > 10 * CANCELS, (a, b, gap)


@pytest.mark.parametrize(
    "change",
    [{"eps": 1.02e-3}, {"betas": (0.8, 0.951)}, {"eps_form": "hat"}, {"bias_correction": False}],
    ids=lambda change: next(iter(change)),
)
def test_the_comparison_sees_a_changed_hyperparameter(change: dict) -> None:
    rule = VARIANTS["adam-eps"]
    expected = run_numpy(rule, START, noise, STEPS)
    with pytest.raises(AssertionError):
        assert_same(run_numpy(replace(rule, **change), START, noise, STEPS), expected, CANCELS)


def test_the_comparison_sees_a_flipped_sign_in_weights_and_in_state() -> None:
    end = run_numpy(VARIANTS["adam-eps"], START, noise, STEPS)
    assert_same(end, end, 0.0)
    flipped = {n: -a for n, a in end.params.items()}
    with pytest.raises(AssertionError):
        assert_same(Run(flipped, end.state), end, CANCELS)
    state = {**end.state, "exp_avg": {n: -a for n, a in end.state["exp_avg"].items()}}
    with pytest.raises(AssertionError):
        assert_same(Run(end.params, state), end, CANCELS)
    with pytest.raises(AssertionError):
        assert_same(Run(end.params, {"exp_avg": end.state["exp_avg"]}), end, CANCELS)
