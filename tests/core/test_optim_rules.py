"""The core's update rules and schedules: refused settings, and results known in advance."""

from __future__ import annotations

import doctest
import importlib
import itertools
import json
import math
import pkgutil
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import dualml.algorithms.optim
from dualml.algorithms.optim import (
    GD,
    RULES,
    SGD,
    Adagrad,
    Adam,
    AdamW,
    LRSchedule,
    OptimizerSpec,
    RMSprop,
    rule_from,
)
from dualml.common.errors import UserError


def run(
    rule: OptimizerSpec, p: float, grads: list[float], rates: list[float] | None = None
) -> list[float]:
    """Return the parameter, a single number, after each update."""
    params, state, seen = {"w": np.array([p])}, rule.init({"w": np.array([p])}), []
    for step, g in enumerate(grads, start=1):
        lr = None if rates is None else rates[step - 1]
        params, state = rule.update(params, {"w": np.array([g])}, state, step, lr)
        seen.append(float(params["w"][0]))
    return seen


MODULES = [
    module.name
    for module in pkgutil.iter_modules(dualml.algorithms.optim.__path__, "dualml.algorithms.optim.")
]


@pytest.mark.parametrize("name", MODULES)
def test_examples_in_docstrings(name: str) -> None:
    assert doctest.testmod(importlib.import_module(name)).failed == 0


def test_some_docstring_has_an_example() -> None:
    found = [doctest.testmod(importlib.import_module(name)).attempted for name in MODULES]
    assert sum(found) >= 3


# Recurrences by hand.


def test_gd_and_sgd_step_against_the_gradient() -> None:
    assert run(GD(lr=0.5), 1.0, [2.0, -1.0]) == [0.0, 0.5]
    assert run(SGD(lr=0.5), 1.0, [2.0, -1.0]) == [0.0, 0.5]


def test_gd_on_a_bowl_is_geometric() -> None:
    """θ' = θ − ηcθ, so θ_t = (1 − ηc)ᵗ·θ_0."""
    p, rule = {"w": np.array([3.0])}, GD(lr=0.1)
    for step in range(1, 11):
        p, _ = rule.update(p, {"w": 2.0 * p["w"]}, {}, step)
    assert p["w"][0] == pytest.approx(3.0 * 0.8**10, rel=1e-14)


def test_sgd_momentum_of_a_constant_gradient() -> None:
    """b_t = g·(1 − μᵗ)/(1 − μ)."""
    found = run(SGD(lr=1.0, momentum=0.5), 0.0, [1.0] * 4)
    steps = [(1 - 0.5**t) / 0.5 for t in range(1, 5)]
    assert found == pytest.approx(list(-np.cumsum(steps)), rel=1e-14)


def test_sgd_dampening_spares_the_first_update() -> None:
    # b = 1, then 0.5·1 + 0.75·1 = 1.25
    assert run(SGD(lr=1.0, momentum=0.5, dampening=0.25), 0.0, [1.0, 1.0]) == [-1.0, -2.25]


def test_sgd_nesterov_looks_ahead() -> None:
    # b = 1, d = 1 + 0.5·1; then b = 1.5, d = 1 + 0.5·1.5
    assert run(SGD(lr=1.0, momentum=0.5, nesterov=True), 0.0, [1.0, 1.0]) == [-1.5, -3.25]


def test_coupled_and_decoupled_decay() -> None:
    # coupled: g = 0 + 0.5·2 = 1
    assert run(SGD(lr=0.1, weight_decay=0.5), 2.0, [0.0]) == pytest.approx([1.9], rel=1e-15)
    # decoupled, no gradient: θ·(1 − 0.1·0.5)
    assert run(AdamW(lr=0.1, weight_decay=0.5), 2.0, [0.0]) == pytest.approx([1.9], rel=1e-15)
    # Adam normalises the coupled one: a step of lr whatever λ is
    assert run(Adam(lr=0.1, weight_decay=0.5, eps=0.0), 2.0, [0.0]) == pytest.approx([1.9])
    assert run(Adam(lr=0.1, weight_decay=0.01, eps=0.0), 2.0, [0.0]) == pytest.approx([1.9])


@pytest.mark.parametrize("g", [3.0, -0.02])
@pytest.mark.parametrize("eps", [1e-8, 1e-3])
def test_adam_first_step(g: float, eps: float) -> None:
    """m̂ = g and v̂ = g², so the step is η·sign(g)/(1 + ε/|g|); "hat": ε/√(1 − β₂) for ε."""
    sign = math.copysign(1.0, g)
    [found] = run(Adam(lr=0.1, eps=eps), 0.0, [g])
    assert found == pytest.approx(-0.1 * sign / (1 + eps / abs(g)), rel=1e-12)
    [found] = run(Adam(lr=0.1, eps=eps, eps_form="hat"), 0.0, [g])
    assert found == pytest.approx(-0.1 * sign / (1 + eps / math.sqrt(0.001) / abs(g)), rel=1e-12)
    [found] = run(Adam(lr=0.1, eps=eps, bias_correction=False), 0.0, [g])
    assert found == pytest.approx(-0.1 * 0.1 * g / (math.sqrt(0.001) * abs(g) + eps), rel=1e-12)


def test_adam_of_a_constant_gradient_steps_by_lr() -> None:
    """Adam with a constant gradient moves by lr each step, because of the bias correction."""
    found = run(Adam(lr=0.1, eps=0.0), 0.0, [-7.0] * 20)
    assert found == pytest.approx([0.1 * t for t in range(1, 21)], rel=1e-12)


def test_rmsprop_forms() -> None:
    # v = 0.5·4 = 2, d = 2/√2
    assert run(RMSprop(lr=1.0, alpha=0.5, eps=0.0), 0.0, [2.0]) == pytest.approx([-math.sqrt(2)])
    # centered: mean 1, v − 1 = 1, d = 2/1
    assert run(RMSprop(lr=1.0, alpha=0.5, eps=0.0, centered=True), 0.0, [2.0]) == [-2.0]
    # ε outside the root: 2/(√2 + 1), inside it would be 2/√3
    assert run(RMSprop(lr=1.0, alpha=0.5, eps=1.0), 0.0, [2.0]) == pytest.approx(
        [-2 / (math.sqrt(2) + 1)]
    )
    # momentum: b = √2, then 0.5·√2 + 2/√3
    found = run(RMSprop(lr=1.0, alpha=0.5, eps=0.0, momentum=0.5), 0.0, [2.0, 2.0])
    assert found == pytest.approx([-math.sqrt(2), -1.5 * math.sqrt(2) - 2 / math.sqrt(3)])


def test_adagrad_of_a_constant_gradient() -> None:
    """√G_t = |g|·√t: steps of η/√t."""
    found = run(Adagrad(lr=0.5, eps=0.0), 0.0, [3.0] * 5)
    assert found == pytest.approx(list(-0.5 * np.cumsum([t**-0.5 for t in range(1, 6)])))
    # G_0 = 7, g = 3: √16; η halved at the second update
    found = run(Adagrad(lr=1.0, eps=0.0, initial_accumulator=7.0, lr_decay=1.0), 0.0, [3.0, 3.0])
    assert found == pytest.approx([-0.75, -0.75 - 0.5 * 3 / 5])


@pytest.mark.parametrize("kind", RULES.values(), ids=list(RULES))
def test_update_is_pure_and_takes_the_rate_it_is_given(kind: type[OptimizerSpec]) -> None:
    rule = kind(lr=0.1)
    params, grads = {"w": np.ones(3)}, {"w": np.array([1.0, -2.0, 0.5])}
    state = rule.init(params)
    assert set(state) == set(rule.state_keys)
    before = {slot: kept["w"].copy() for slot, kept in state.items()}
    new, after = rule.update(params, grads, state, 1, lr=0.3)
    assert (params["w"] == 1).all()
    assert all((state[slot]["w"] == before[slot]).all() for slot in state)
    assert set(after) == set(rule.state_keys)
    assert np.array_equal(new["w"], replace(rule, lr=0.3).update(params, grads, state, 1)[0]["w"])


# What the rules refuse.


@pytest.mark.parametrize(
    ("kind", "fields", "message"),
    [
        (GD, {"lr": 0.0}, "gd: lr must satisfy 0 < lr < 3e\\+38; received lr=0.0"),
        (SGD, {"lr": float("nan")}, "received lr=nan"),
        (SGD, {"lr": float("inf")}, "received lr=inf"),
        (SGD, {"lr": "0.1"}, "received lr='0.1'"),
        (SGD, {"lr": True}, "received lr=True"),
        (SGD, {"lr": 0.1, "momentum": 1.5}, "momentum must satisfy 0 <= momentum <= 1"),
        (SGD, {"lr": 0.1, "dampening": -0.1}, "dampening must satisfy"),
        (SGD, {"lr": 0.1, "weight_decay": -1.0}, "weight_decay must satisfy"),
        (SGD, {"lr": 0.1, "nesterov": True}, "nesterov needs momentum > 0"),
        (SGD, {"lr": 0.1, "momentum": 0.9, "dampening": 0.1, "nesterov": True}, "dampening = 0"),
        (Adam, {"lr": 0.1, "betas": (0.9, 1.0)}, r"betas must be two numbers in \[0, 1\)"),
        (Adam, {"lr": 0.1, "betas": (0.9,)}, "betas must be two numbers"),
        (Adam, {"lr": 0.1, "eps": -1e-8}, "eps must satisfy"),
        (Adam, {"lr": 0.1, "eps_form": "inside"}, "eps_form must be 'outside' or 'hat'"),
        (AdamW, {"lr": 0.1, "weight_decay": -0.1}, "adamw: weight_decay must satisfy"),
        (RMSprop, {"lr": 0.1, "alpha": 1.0}, "alpha must satisfy"),
        (RMSprop, {"lr": 0.1, "momentum": 1.0}, "momentum must satisfy"),
        (Adagrad, {"lr": 0.1, "lr_decay": -1.0}, "lr_decay must satisfy"),
        (Adagrad, {"lr": 0.1, "initial_accumulator": -1.0}, "initial_accumulator must satisfy"),
    ],
)
def test_out_of_range(kind: type[OptimizerSpec], fields: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        kind(**fields)


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({"name": "adm", "lr": 0.1}, "unknown optimizer 'adm'; did you mean 'adam'"),
        ({"lr": 0.1}, "an optimizer needs a name"),
        ({"name": [1], "lr": 0.1}, r"unknown optimizer \[1\]"),
        ({"name": "sgd"}, "optimizer 'sgd' needs lr"),
        ({"name": "sgd", "lr": 0.1, "momentun": 0.9}, "did you mean 'momentum'"),
    ],
)
def test_rule_from_explains(spec: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        rule_from(spec)


@pytest.mark.parametrize("kind", RULES.values(), ids=list(RULES))
def test_hyperparameters_survive_json(kind: type[OptimizerSpec]) -> None:
    rule = kind(lr=0.1)
    assert rule_from(json.loads(json.dumps(rule.hyperparameters()))) == rule


def test_integers_become_floats() -> None:
    assert isinstance(rule_from({"name": "sgd", "lr": 1, "momentum": 0}).lr, float)


# Schedules.


def test_warm_up_rises_linearly_to_one() -> None:
    factors = LRSchedule(warmup=4).factors(6)
    assert factors == [0.25, 0.5, 0.75, 1.0, 1.0, 1.0]


def test_step_drops_after_every_so_many_updates_of_its_own() -> None:
    assert LRSchedule(kind="step", every=2, gamma=0.5, warmup=2).factors(7) == [
        *(0.5, 1.0),
        *(1.0, 1.0, 0.5, 0.5, 0.25),
    ]


def test_cosine_starts_at_one_is_half_way_in_the_middle_and_ends_at_the_floor() -> None:
    factors = LRSchedule(kind="cosine", total=10, floor=0.2).factors(12)
    assert factors[0] == 1.0
    assert factors[5] == pytest.approx(0.6)
    assert factors[10] == factors[11] == pytest.approx(0.2)
    assert all(a >= b for a, b in itertools.pairwise(factors))
    # without a total the trial's length is meant
    assert LRSchedule(kind="cosine").factor(6, updates=10) == pytest.approx(0.5)
    # the wave begins after the warm-up
    assert LRSchedule(kind="cosine", total=12, warmup=2).factors(12)[:3] == [0.5, 1.0, 1.0]


def test_schedule_survives_json() -> None:
    schedule = LRSchedule(kind="cosine", total=9, floor=0.1, warmup=2)
    assert LRSchedule(**json.loads(json.dumps(schedule.describe()))) == schedule


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"kind": "linear"}, "schedule: kind must be .*; received kind='linear'"),
        ({"every": 0}, "every must be an integer >= 1; received every=0"),
        ({"gamma": 0.0}, r"gamma must lie in \(0, 1\]; received gamma=0.0"),
        ({"total": -1}, "total must be an integer >= 0"),
        ({"floor": 1.5}, r"floor must lie in \[0, 1\]"),
        ({"warmup": 1.5}, "warmup must be an integer >= 0"),
        ({"warmup": True}, "warmup must be an integer >= 0"),
        ({"total": 5, "warmup": 5}, "total must exceed warmup"),
    ],
)
def test_schedule_explains(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        LRSchedule(**fields)
