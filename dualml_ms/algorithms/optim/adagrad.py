"""Adagrad in MindSpore."""

from __future__ import annotations

from typing import Any

import mindspore as ms
from mindspore import ops

from dualml.algorithms import optim as rules
from dualml_ms.algorithms.optim.base import OPTIMIZERS, RuleOptimizer


@OPTIMIZERS.register("adagrad")
class Adagrad(RuleOptimizer):
    """Adagrad: G ← G + g²;  θ ← θ − η_t·g/(√G + ε); see `dualml.algorithms.optim.Adagrad`.

    The kernel ``ApplyAdagradV2`` computes exactly this line.

    Example:
        >>> import mindspore as ms
        >>> w = ms.Parameter(ms.Tensor([1.0]), name="w")
        >>> _ = Adagrad([w], lr=0.5)((ms.Tensor([2.0]),))
        >>> w.asnumpy().tolist()
        [0.5]
    """

    rule_type = rules.Adagrad

    def __init__(self, parameters: Any, learning_rate: Any = None, **hyperparameters: Any) -> None:
        super().__init__(parameters, learning_rate, **hyperparameters)
        self.lr_decay = self.rule.lr_decay
        self.apply = ops.ApplyAdagradV2(epsilon=self.rule.eps)

    def initial_value(self, slot: str) -> Any:
        """Return the rule's initial sum of squared gradients, a float."""
        return self.rule.initial_accumulator

    def coefficients(self, lr, t):
        """Return the rate of update ``t``, lr / (1 + (t − 1) · lr_decay), as a tuple of one."""
        if self.lr_decay > 0:
            lr = lr / (1.0 + (t - 1).astype(ms.float32) * self.lr_decay)
        return (lr,)

    def update(self, i, g, decay, numbers):
        """Add g² to ``sum[i]`` and update parameter ``i``, both in place by one kernel; weight
        decay is coupled."""
        (rate,) = numbers
        p = self.parameters[i]
        if decay > 0:
            g = g + decay * p
        self.apply(p, self.sum[i], rate, g)
