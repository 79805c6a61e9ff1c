"""RMSprop in PyTorch: plain, centered and with momentum."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from dualml.algorithms import optim as rules
from dualml_torch.algorithms.optim.base import OPTIMIZERS, RuleOptimizer
from dualml_torch.algorithms.optim.foreach import (
    Group,
    List,
    Number,
    Workspace,
    foreach_add,
    foreach_add_,
    foreach_add_scalar_,
    foreach_addcdiv_,
    foreach_mul_,
    foreach_sqrt,
)


@OPTIMIZERS.register("rmsprop")
class RMSprop(RuleOptimizer):
    """RMSprop, plain, centered or with momentum, see `dualml.algorithms.optim.RMSprop`.

    v ← αv + (1−α)g²;  θ ← θ − η·g/(√v + ε).

    Example:
        >>> import torch
        >>> w = torch.nn.Parameter(torch.ones(1))
        >>> w.grad = torch.tensor([2.0])
        >>> RMSprop([w], lr=0.5, alpha=0.0).step()
        >>> w.tolist()
        [0.5]
    """

    rule_type = rules.RMSprop

    @staticmethod
    def coefficients(group: Group, step: int) -> tuple[float, ...]:
        """Return (η,), the learning rate of ``group``."""
        return (float(group["lr"]),)

    @staticmethod
    def update(
        p: List,
        g: List,
        state: Mapping[str, List],
        group: Group,
        lr: Number,
        *,
        workspace: Workspace,
    ) -> None:
        """Update ``square_avg``, ``grad_avg`` if centered, ``momentum_buffer`` with momentum, and
        the parameters ``p``, in place; weight decay λ·p is added to the gradient first."""
        alpha, v = group["alpha"], state["square_avg"]
        if group["weight_decay"]:
            g = foreach_add(g, p, group["weight_decay"], None)
        foreach_mul_(v, alpha)
        torch._foreach_addcmul_(v, g, g, 1 - alpha)
        if group["centered"]:
            mean = state["grad_avg"]
            torch._foreach_lerp_(mean, g, 1 - alpha)
            d = torch._foreach_addcmul(v, mean, mean, -1)
            torch._foreach_sqrt_(d)
        else:
            d = foreach_sqrt(v, workspace(p), group["eps"])
        foreach_add_scalar_(d, group["eps"])
        if group["momentum"]:
            b = state["momentum_buffer"]
            foreach_mul_(b, group["momentum"])
            torch._foreach_addcdiv_(b, g, d)
            foreach_add_(p, b, -lr)
        else:
            foreach_addcdiv_(p, g, d, -lr)
