"""Stochastic gradient descent with momentum, dampening, Nesterov and coupled weight decay."""

from __future__ import annotations

from collections.abc import Mapping

from dualml.algorithms import optim as rules
from dualml_torch.algorithms.optim.base import OPTIMIZERS, RuleOptimizer
from dualml_torch.algorithms.optim.foreach import (
    Group,
    List,
    Number,
    Workspace,
    foreach_add,
    foreach_add_,
    foreach_mul_,
)


@OPTIMIZERS.register("sgd")
class SGD(RuleOptimizer):
    """SGD with momentum, see `dualml.algorithms.optim.SGD`.

    g ← g + λθ;  b ← μb + (1−τ)g;  θ ← θ − η·(g + μb if Nesterov else b). The first gradient is not
    dampened, and without momentum none is: θ ← θ − ηg. Its ``coefficients`` are ``lr`` = η and
    ``share`` = 1 − τ, in the first update 1.

    Example:
        >>> import torch
        >>> w = torch.nn.Parameter(torch.ones(2))
        >>> w.grad = torch.ones(2)
        >>> SGD([w], lr=0.5, momentum=0.9).step()
        >>> w.tolist()
        [0.5, 0.5]
    """

    rule_type = rules.SGD

    @staticmethod
    def is_one_operation(group: Group) -> bool:
        """Return whether ``group`` has neither momentum nor weight decay."""
        return not group["momentum"] and not group["weight_decay"]

    @staticmethod
    def coefficients(group: Group, step: int) -> tuple[float, ...]:
        """Return (η, 1 − τ) with the dampening τ; in update 1 the second is 1 whatever τ is."""
        # The buffer starts at zero, so an undampened first gradient is b_1 = g.
        return float(group["lr"]), 1.0 if step == 1 else 1.0 - group["dampening"]

    @staticmethod
    def update(
        p: List,
        g: List,
        state: Mapping[str, List],
        group: Group,
        lr: Number,
        share: Number,
        *,
        workspace: Workspace,
    ) -> None:
        """Update ``momentum_buffer``, if there is momentum, and the parameters ``p`` in place;
        weight decay λ·p is added to the gradient first."""
        decay, mu = group["weight_decay"], group["momentum"]
        if decay:
            g = foreach_add(g, p, decay, workspace(p))
        if mu:
            b = state["momentum_buffer"]
            foreach_mul_(b, mu)
            foreach_add_(b, g, share)
            g = foreach_add(g, b, mu, workspace(p)) if group["nesterov"] else b
        foreach_add_(p, g, -lr)
