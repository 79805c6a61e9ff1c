"""RMSprop in MindSpore: plain, centered and with momentum."""

from __future__ import annotations

from typing import Any

from mindspore import ops

from dualml.algorithms import optim as rules
from dualml_ms.algorithms.optim.base import OPTIMIZERS, RuleOptimizer


@OPTIMIZERS.register("rmsprop")
class RMSprop(RuleOptimizer):
    """RMSprop, plain, centered or with momentum, see `dualml.algorithms.optim.RMSprop`.

    v ← αv + (1−α)g²;  θ ← θ − η·g/(√v + ε).
    The kernels ``ApplyRMSProp`` and ``ApplyCenteredRMSProp`` are not used: their ε is inside the
    root.

    Example:
        >>> import mindspore as ms
        >>> w = ms.Parameter(ms.Tensor([1.0]), name="w")
        >>> _ = RMSprop([w], lr=0.5, alpha=0.0)((ms.Tensor([2.0]),))
        >>> w.asnumpy().tolist()
        [0.5]
    """

    rule_type = rules.RMSprop

    def __init__(self, parameters: Any, learning_rate: Any = None, **hyperparameters: Any) -> None:
        super().__init__(parameters, learning_rate, **hyperparameters)
        rule = self.rule
        self.alpha, self.eps, self.mu = rule.alpha, rule.eps, rule.momentum
        self.centered = rule.centered
        self.share = 1 - rule.alpha  # not in `update`: graph mode subtracts in float32

    def coefficients(self, lr, t):
        """Return the rate ``lr`` as a tuple of one."""
        return (lr,)

    def update(self, i, g, decay, numbers):
        """Update parameter ``i`` in place with its running averages, and with its momentum buffer
        if there is momentum; weight decay is coupled."""
        (lr,) = numbers
        p = self.parameters[i]
        if decay > 0:
            g = g + decay * p
        v = self.alpha * self.square_avg[i] + self.share * (g * g)
        ops.assign(self.square_avg[i], v)
        if self.centered:
            mean = self.alpha * self.grad_avg[i] + self.share * g
            ops.assign(self.grad_avg[i], mean)
            v = v - mean * mean
        d = g / (ops.sqrt(v) + self.eps)
        if self.mu > 0:
            d = self.mu * self.momentum_buffer[i] + d
            ops.assign(self.momentum_buffer[i], d)
        ops.assign_sub(p, lr * d)
