"""Stochastic gradient descent with momentum, dampening, Nesterov and coupled weight decay."""

from __future__ import annotations

from typing import Any

import mindspore as ms
from mindspore import ops

from dualml.algorithms import optim as rules
from dualml_ms.algorithms.optim.base import OPTIMIZERS, RuleOptimizer


@OPTIMIZERS.register("sgd")
class SGD(RuleOptimizer):
    """SGD with momentum, see `dualml.algorithms.optim.SGD`.

    g ← g + λθ;  b ← μb + (1−τ)g;  θ ← θ − η·(g + μb if Nesterov else b). The first gradient is not
    dampened, and without momentum none is: θ ← θ − ηg.
    The kernel ``ApplyMomentum`` computes b ← μb + g and θ ← θ − ηb in one pass. Its own Nesterov
    flag is ignored on CPUs, so the two terms of Nesterov's step are applied one after the other.

    Example:
        >>> import mindspore as ms
        >>> w = ms.Parameter(ms.Tensor([1.0, 1.0]), name="w")
        >>> _ = SGD([w], lr=0.5, momentum=0.9)((ms.Tensor([1.0, 1.0]),))
        >>> w.asnumpy().tolist()
        [0.5, 0.5]
    """

    rule_type = rules.SGD

    def __init__(self, parameters: Any, learning_rate: Any = None, **hyperparameters: Any) -> None:
        super().__init__(parameters, learning_rate, **hyperparameters)
        self.mu, self.nesterov = self.rule.momentum, self.rule.nesterov
        self.dampening = self.rule.dampening
        self.apply = ops.ApplyMomentum()

    def coefficients(self, lr, t):
        """Return the rate, and the factor of the gradient in the momentum buffer: 1 in update 1,
        then 1 − dampening."""
        # The buffer starts at zero, so an undampened first gradient is b_1 = g.
        return lr, 1.0 - self.dampening * (t > 1).astype(ms.float32)

    def update(self, i, g, decay, numbers):
        """Update parameter ``i`` and its momentum buffer in place; weight decay is coupled. Without
        momentum subtract lr · g."""
        lr, share = numbers
        p = self.parameters[i]
        if decay > 0:
            g = g + decay * p
        if self.mu == 0:
            ops.assign_sub(p, lr * g)
        elif self.nesterov:
            self.apply(p, self.momentum_buffer[i], lr * self.mu, g, self.mu)
            ops.assign_sub(p, lr * g)
        elif self.dampening > 0:
            self.apply(p, self.momentum_buffer[i], lr, share * g, self.mu)
        else:
            self.apply(p, self.momentum_buffer[i], lr, g, self.mu)
