"""Adam in MindSpore."""

from __future__ import annotations

from math import sqrt
from typing import Any

import mindspore as ms
import numpy as np
from mindspore import ops

from dualml.algorithms import optim as rules
from dualml_ms.algorithms.optim.base import OPTIMIZERS, RuleOptimizer


@OPTIMIZERS.register("adam")
class Adam(RuleOptimizer):
    """Adam as a `mindspore.nn.Optimizer`, see `dualml.algorithms.optim.Adam`.

    m ← β₁m + (1−β₁)g;  v ← β₂v + (1−β₂)g²;  θ ← θ − size·m/(√v + ε').
    Both forms of epsilon are this one line, with c = 1 − βᵗ: size = η·√c₂/c₁ and ε' = ε·√c₂
    ("outside": numerator and denominator of m̂/(√v̂ + ε) times √c₂) or ε' = ε ("hat").

    The kernel ``ops.Adam`` computes the line in one pass. It would correct the bias itself, in
    float32, where 1 − 0.999ᵗ has only four digits; powers of zero switch that off. Its averages are
    computed as m + (1−β)(g − m), which loses small entries if β is small: below 1/2 the line is
    composed of assignments.

    Example:
        >>> import mindspore as ms
        >>> w = ms.Parameter(ms.Tensor([1.0, 1.0]), name="w")
        >>> _ = Adam([w], lr=0.25)((ms.Tensor([3.0, -0.5]),))
        >>> w.asnumpy().round(6).tolist()
        [0.75, 1.25]
    """

    rule_type = rules.Adam

    def __init__(self, parameters: Any, learning_rate: Any = None, **hyperparameters: Any) -> None:
        super().__init__(parameters, learning_rate, **hyperparameters)
        rule = self.rule
        self.b1, self.b2 = rule.betas
        # Not in `update`: graph mode subtracts in float32.
        self.share1, self.share2 = 1 - self.b1, 1 - self.b2
        self.wide1, self.wide2 = (ms.Tensor(b, ms.float64) for b in rule.betas)
        self.bias_correction, self.outside = rule.bias_correction, rule.eps_form == "outside"
        k1, k2 = self.state_unit("exp_avg"), self.state_unit("exp_avg_sq")
        self.scale, self.eps = sqrt(k2) / k1, rule.eps * sqrt(k2)
        self.fused, self.apply = self._uses_fused_kernel(), ops.Adam()

    def _uses_fused_kernel(self) -> bool:
        """Return whether ``ops.Adam`` makes the updates: both betas are at least 1/2."""
        return min(self.rule.betas) >= 0.5

    def state_unit(self, slot: str) -> float:
        """Return the factor of the stored averages: the kernel forms 1 − β in float32 (for 0.999:
        1.3e-5 too small). `coefficients` compensates for it, and `state` divides by it."""
        if not self._uses_fused_kernel():
            return 1.0
        beta = self.rule.betas[0 if slot == "exp_avg" else 1]
        return float(np.float32(1) - np.float32(beta)) / (1 - beta)

    def coefficients(self, lr, t):
        """Return lr, the step size and ε' of update ``t``, in the units of the stored averages."""
        size, eps = lr * self.scale, self.eps
        if self.bias_correction:
            # 1 − βᵗ cancels: in float32 (on a CPU also by expm1) it is 1.3e-5 off at β = 0.999.
            root2 = ops.sqrt(1 - ops.pow(self.wide2, t))
            size = size * (root2 / (1 - ops.pow(self.wide1, t))).astype(ms.float32)
            if self.outside:
                eps = root2.astype(ms.float32) * self.eps
        return lr, size, eps

    def decay(self, p, g, decay, lr):
        """Return the gradient ``g`` plus ``decay`` times ``p``."""
        return g + decay * p

    def update(self, i, g, decay, numbers):
        """Update parameter ``i`` and its averages m and v in place, after `decay` with a ``decay``
        above 0: by ``ops.Adam``, or by assignments if a beta is below 1/2."""
        lr, size, eps = numbers
        p, m, v = self.parameters[i], self.exp_avg[i], self.exp_avg_sq[i]
        if decay > 0:
            g = self.decay(p, g, decay, lr)
        if self.fused:
            self.apply(p, m, v, 0.0, 0.0, size, self.b1, self.b2, eps, g)
        else:
            m_t = self.b1 * m + self.share1 * g
            v_t = self.b2 * v + self.share2 * (g * g)
            ops.assign(m, m_t)
            ops.assign(v, v_t)
            ops.assign_sub(p, size * m_t / (ops.sqrt(v_t) + eps))
