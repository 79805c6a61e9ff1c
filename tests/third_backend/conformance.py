"""The update rules of this backend alone, as the conformance suite runs them (see
`dualml.backend.conformance`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from dualml.algorithms.optim import OptimizerSpec
from dualml.backend.conformance import Gradient, Mode, OptimizerResult, Params
from third_backend.optim import Optimizer

MODES = {"eager": Mode("float32")}
COMPILES = False


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
        own = {n: np.array(a, np.float32) for n, a in start.items()}
        optimizer = Optimizer(self.rules[name], own)
        for step in range(1, steps + 1):
            now = gradient({n: a.astype(np.float64) for n, a in own.items()}, step)
            rate = self.rates[name][step - 1] if self.rates else self.rules[name].lr
            optimizer.update({n: np.float32(g) for n, g in now.items()}, step, rate)
        return OptimizerResult(own, optimizer.state())


def optimizers(
    rules: Mapping[str, OptimizerSpec],
    shapes: Mapping[str, tuple[int, ...]],
    mode: str,
    rates: Mapping[str, Sequence[float]] | None = None,
    device: str = "cpu",
) -> Optimizers:
    """Return the rules as the conformance suite runs them; there is one mode, and shapes need no
    set-up."""
    return Optimizers(rules, rates or {})


def settings() -> dict[str, str]:
    """Return the process-wide settings that a backend must not change, here NumPy's error
    handling."""
    return {"errors": str(np.geterr())}
