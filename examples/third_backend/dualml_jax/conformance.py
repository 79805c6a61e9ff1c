"""The update rules alone, as dualml's conformance suite runs them (see
`dualml.backend.conformance`).

DUALML_CONFORMANCE=jax pytest tests/conformance/test_optim.py tests/conformance/test_training.py
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from dualml.algorithms.optim import OptimizerSpec
from dualml.backend.conformance import Gradient, Mode, OptimizerResult, Params
from dualml_jax.backend import copies, single
from dualml_jax.optim import update

MODES = {"eager": Mode("float32")}
COMPILES = True


class Optimizers:
    """Update rules that are run for some steps on gradients given by a function."""

    def __init__(
        self, rules: Mapping[str, OptimizerSpec], rates: Mapping[str, Sequence[float]]
    ) -> None:
        self.rules, self.rates = rules, rates

    def run(self, start: Params, gradient: Gradient, steps: int) -> dict[str, OptimizerResult]:
        return {name: self.run_rule(name, start, gradient, steps) for name in self.rules}

    def run_rule(self, name: str, start: Params, gradient: Gradient, steps: int) -> OptimizerResult:
        """Run one rule for ``steps`` updates and return its final parameters and state."""
        rule, own = self.rules[name], single(start)
        slots = {slot: single(named) for slot, named in rule.init(start).items()}
        for step in range(1, steps + 1):
            rate = self.rates[name][step - 1] if self.rates else rule.lr
            update(rule, own, slots, single(gradient(copies(own), step)), step, rate)
        return OptimizerResult(copies(own), {slot: copies(named) for slot, named in slots.items()})


def optimizers(
    rules: Mapping[str, OptimizerSpec],
    shapes: Mapping[str, tuple[int, ...]],
    mode: str,
    rates: Mapping[str, Sequence[float]] | None = None,
    device: str = "cpu",
) -> Optimizers:
    """Return the rules, each with its own parameters; JAX needs no shapes in advance."""
    return Optimizers(rules, rates or {})


def settings() -> dict[str, str]:
    """Return the process-wide settings that a capability could change: JAX has none."""
    return {}
