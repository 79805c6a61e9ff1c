"""Adagrad in PyTorch."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from dualml.algorithms import optim as rules
from dualml_torch.algorithms.optim.base import OPTIMIZERS, RuleOptimizer
from dualml_torch.algorithms.optim.foreach import (
    Group,
    List,
    Number,
    Workspace,
    foreach_add,
    foreach_add_scalar_,
    foreach_addcdiv_,
    foreach_sqrt,
)


@OPTIMIZERS.register("adagrad")
class Adagrad(RuleOptimizer):
    """Adagrad: G ← G + g²;  θ ← θ − η_t·g/(√G + ε); see `dualml.algorithms.optim.Adagrad`.

    Its ``coefficients`` are ``rate`` = η_t.

    Example:
        >>> import torch
        >>> w = torch.nn.Parameter(torch.ones(1))
        >>> w.grad = torch.tensor([2.0])
        >>> Adagrad([w], lr=0.5).step()
        >>> w.tolist()
        [0.5]
    """

    rule_type = rules.Adagrad

    def initial_state(self, p: Tensor, group: Group) -> dict[str, Tensor]:
        """Return the sum of squared gradients of ``p``, filled with ``initial_accumulator``."""
        start = group["initial_accumulator"]
        return {"sum": torch.full_like(p, start, requires_grad=False)}

    @staticmethod
    def coefficients(group: Group, step: int) -> tuple[float, ...]:
        """Return (η_t,) of update ``step`` = t: η/(1 + (t − 1)·``lr_decay``)."""
        return (group["lr"] / (1 + (step - 1) * group["lr_decay"]),)

    @staticmethod
    def update(
        p: List,
        g: List,
        state: Mapping[str, List],
        group: Group,
        rate: Number,
        *,
        workspace: Workspace,
    ) -> None:
        """Add g² to ``sum``, then subtract ``rate``·g/(√sum + ε) from ``p``, both in place; with
        weight decay λ, g is g + λ·p."""
        total = state["sum"]
        if group["weight_decay"]:
            g = foreach_add(g, p, group["weight_decay"], None)
        torch._foreach_addcmul_(total, g, g)
        d = foreach_sqrt(total, workspace(p), group["eps"])
        foreach_add_scalar_(d, group["eps"])
        foreach_addcdiv_(p, g, d, -rate)
