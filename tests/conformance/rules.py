"""Test gradients for optimizers, the float64 recurrence, and the comparison with it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dualml.algorithms.optim import RULES, LRSchedule, OptimizerSpec
from dualml.backend.conformance import Gradient, OptimizerResult, Params

VARIANTS: dict[str, OptimizerSpec] = {
    name: rule(**values) for rule in RULES.values() for name, values in rule.variants.items()
}
START: Params = {
    "conv.weight": np.random.default_rng(1).normal(size=(4, 2, 3, 3)),
    "bn.gamma": np.random.default_rng(2).normal(size=(17,)),
    "bn.beta": np.random.default_rng(3).normal(size=(1,)),
}
START = {n: a.astype(np.float32).astype(np.float64) for n, a in START.items()}
ZERO = {n: np.zeros_like(p) for n, p in START.items()}


def noise(params: Params, step: int) -> Params:
    """Return random gradients that do not depend on the parameters; some are tiny, where epsilon
    matters."""
    rng = np.random.default_rng(100 + step)
    scale = {"conv.weight": 1.0, "bn.gamma": 1e-3, "bn.beta": 0.3}
    return {
        n: (scale[n] * rng.normal(size=p.shape)).astype(np.float32).astype(np.float64)
        for n, p in params.items()
    }


def positive(params: Params, step: int) -> Params:
    return {n: np.abs(g) for n, g in noise(params, step).items()}


def bowl(params: Params, step: int) -> Params:
    """Return the gradient of ½ Σ cᵢθᵢ² with curvatures c from 0.1 to 3: errors feed back into
    it."""
    return {n: np.linspace(0.1, 3.0, p.size).reshape(p.shape) * p for n, p in params.items()}


@dataclass(frozen=True)
class Situation:
    """An optimizer test: initial parameters, gradients, and the allowed distance from the
    recurrence.

    Attributes:
        steps: number of updates; a mode may allow fewer.
        tolerance: in float32, for ``centered`` rules and for all others.
    """

    start: Params
    gradient: Gradient
    steps: int
    tolerance: tuple[float, float]


# float32 rounding: 30 steps of a few operations at 6e-8 each, which add up to at most 30·4·6e-8 =
# 7e-6 and, being of both signs, to a few 1e-7 in practice. Centered RMSprop cancels under the root.
CANCELS, FLOAT32 = 2e-5, 2e-6
SITUATIONS = {
    "noise": Situation(START, noise, 30, (CANCELS, FLOAT32)),
    "bowl": Situation(START, bowl, 30, (CANCELS, FLOAT32)),
    # From zero the parameters *are* the updates: every digit of them counts, and the bias
    # corrections, where 1 − βᵗ cancels, are at their worst. Of one sign, updates do not cancel.
    "from zero": Situation(ZERO, positive, 2, (1e-5, 5e-7)),
}
#: Tolerance in float64.
EXACT = (1e-10, 1e-12)
#: Rules that a costly mode runs, and those that are run with changing learning rates.
FEW = ("sgd-nesterov", "adam-decay", "adamw", "rmsprop-all")
SCHEDULED = ("sgd-dampening", "adamw", "adagrad-all")


def rates_of(rule: OptimizerSpec, steps: int) -> list[float]:
    """Return learning rates that change every step, down to 0 at the end of the cosine."""
    factors = LRSchedule(kind="cosine", total=steps - 1, warmup=min(5, steps // 2)).factors(steps)
    return [rule.lr * factor for factor in factors]


def recurrence(
    rule: OptimizerSpec,
    start: Params,
    gradient: Gradient,
    steps: int,
    rates: Sequence[float] | None = None,
) -> OptimizerResult:
    """Run the float64 rule itself and return its final parameters and state."""
    params, state = start, rule.init(start)
    for step in range(1, steps + 1):
        lr = None if rates is None else rates[step - 1]
        params, state = rule.update(params, gradient(params, step), state, step, lr)
    return OptimizerResult(params, state)


def tolerance(rule: OptimizerSpec, bounds: tuple[float, float]) -> float:
    return bounds[0 if rule.hyperparameters().get("centered") else 1]


def assert_same(end: OptimizerResult, expected: OptimizerResult, bound: float) -> None:
    """Assert that every parameter and state tensor is within ``bound`` × (largest |expected
    entry|).

    Entries of one tensor come from the same recurrence, so their rounding scales with the tensor.
    """
    assert end.state.keys() == expected.state.keys()
    pairs = [("parameter", end.parameters, expected.parameters)]
    pairs += [(slot, end.state[slot], expected.state[slot]) for slot in expected.state]
    for kind, own, wanted in pairs:
        assert own.keys() == wanted.keys()
        for name, want in wanted.items():
            assert own[name].shape == want.shape, (kind, name)
            distance = np.abs(own[name] - want).max() / max(np.abs(want).max(), 1e-30)
            assert distance <= bound, f"{kind} {name}: {distance:.2e} > {bound:.0e}"
