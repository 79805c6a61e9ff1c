"""Gradient descent: the deterministic method of Lab 1."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from dualml.algorithms.optim.base import RULES, Array, OptimizerSpec, Params, Variants


@RULES.register("gd", 10)
@dataclass(frozen=True, kw_only=True)
class GD(OptimizerSpec):
    r"""θ_t = θ_{t-1} − η·∇f(θ_{t-1}), with ∇f the gradient over the *whole* training set.

    The rule is that of plain SGD; what makes it GD is the batch: every update sees all samples,
    accumulated over chunks (mean of chunk means, weighted by chunk size), so a run has no
    randomness but its initial weights.

    Args:
        lr: learning rate η, > 0.

    Example:
        >>> import numpy as np
        >>> GD(lr=0.5).update({"w": np.ones(1)}, {"w": np.ones(1)}, {}, 1)[0]["w"]
        array([0.5])

    Source: Cauchy 1847; Nocedal & Wright, *Numerical Optimization*, ch. 3.
    """

    variants: ClassVar[Variants] = {"gd": {"lr": 0.05}}

    def formulas(self) -> list[str]:
        """Return the gradient over the whole training set and the update in LaTeX."""
        return [
            r"g_t = \frac{1}{N} \sum_{i=1}^{N} \nabla \ell_i ( \theta_{t-1} )",
            r"\theta_t = \theta_{t-1} - \eta \, g_t",
        ]

    def update_param(
        self, p: Array, g: Array, s: Params, step: int, lr: float
    ) -> tuple[Array, Params]:
        """Return p − lr·g, and an empty state."""
        return p - lr * g, {}
