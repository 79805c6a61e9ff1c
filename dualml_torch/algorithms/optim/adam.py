"""Adam in PyTorch."""

from __future__ import annotations

from collections.abc import Mapping
from math import sqrt

import torch

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
    foreach_mul_,
    foreach_sqrt,
)


@OPTIMIZERS.register("adam")
class Adam(RuleOptimizer):
    """Adam as a `torch.optim.Optimizer`, see `dualml.algorithms.optim.Adam`.

    m ← β₁m + (1−β₁)g;  v ← β₂v + (1−β₂)g²;  θ ← θ − size·m/(√v + ε').
    Both forms of epsilon are this one line, with c = 1 − βᵗ: size = η·√c₂/c₁ and ε' = ε·√c₂
    ("outside": numerator and denominator of m̂/(√v̂ + ε) times √c₂) or ε' = ε ("hat").
    Its ``coefficients`` are ``size``, ``eps`` = ε' and ``keep``, the factor of decoupled decay.

    Example:
        >>> import torch
        >>> w = torch.nn.Parameter(torch.ones(2))
        >>> w.grad = torch.tensor([3.0, -0.5])
        >>> Adam([w], lr=0.25).step()
        >>> w.tolist()
        [0.75, 1.25]
    """

    rule_type = rules.Adam

    @staticmethod
    def coefficients(group: Group, step: int) -> tuple[float, ...]:
        """Return (size, ε', keep) of update ``step`` (from 1): η·√c₂/c₁; ε·√c₂ for ``eps_form``
        "outside", else ε; 1 − η·λ. Here c = 1 − βᵗ, or 1 without bias correction."""
        lr, eps, (b1, b2) = group["lr"], group["eps"], group["betas"]
        c1, c2 = (1 - b1**step, 1 - b2**step) if group["bias_correction"] else (1.0, 1.0)
        if group["eps_form"] == "outside":
            eps *= sqrt(c2)
        keep = 1 - lr * group["weight_decay"]
        return lr * sqrt(c2) / c1, eps, keep

    @staticmethod
    def decay(p: List, g: List, weight_decay: float, keep: Number, workspace: Workspace) -> List:
        """Return the gradients with coupled decay, ``g`` + ``weight_decay``·``p``, as new tensors
        or in ``workspace(p)``; ``g`` and ``p`` are unchanged. ``keep`` is ignored: only `AdamW`
        needs it."""
        return foreach_add(g, p, weight_decay, workspace(p))

    @classmethod
    def update(
        cls,
        p: List,
        g: List,
        state: Mapping[str, List],
        group: Group,
        *numbers: Number,
        workspace: Workspace,
    ) -> None:
        """Apply weight decay by `decay`, if there is any, then update the moments ``exp_avg`` and
        ``exp_avg_sq`` and the parameters ``p`` in place; ``numbers`` are those of
        `coefficients`."""
        size, eps, keep = numbers
        (b1, b2), m, v = group["betas"], state["exp_avg"], state["exp_avg_sq"]
        if group["weight_decay"]:
            g = cls.decay(p, g, group["weight_decay"], keep, workspace)
        torch._foreach_lerp_(m, g, 1 - b1)
        foreach_mul_(v, b2)
        torch._foreach_addcmul_(v, g, g, 1 - b2)
        d = foreach_sqrt(v, workspace(p), eps)
        foreach_add_scalar_(d, eps)
        foreach_addcdiv_(p, m, d, -size)
