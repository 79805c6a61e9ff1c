"""Gradient descent in MindSpore."""

from __future__ import annotations

from mindspore import ops

from dualml.algorithms import optim as rules
from dualml_ms.algorithms.optim.base import OPTIMIZERS, RuleOptimizer


@OPTIMIZERS.register("gd")
class GD(RuleOptimizer):
    """Gradient descent: θ ← θ − η·g on batches of the whole training set; see
    `dualml.algorithms.optim.GD`."""

    rule_type = rules.GD

    def coefficients(self, lr, t):
        """Return the rate ``lr`` as a tuple of one."""
        return (lr,)

    def update(self, i, g, decay, numbers):
        """Subtract lr · ``g`` from parameter ``i`` in place; ``decay`` is ignored, the rule has
        none."""
        (lr,) = numbers
        ops.assign_sub(self.parameters[i], lr * g)
