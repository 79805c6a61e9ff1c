"""Gradient descent in PyTorch."""

from __future__ import annotations

from collections.abc import Mapping

from dualml.algorithms import optim as rules
from dualml_torch.algorithms.optim.base import OPTIMIZERS, RuleOptimizer
from dualml_torch.algorithms.optim.foreach import Group, List, Number, Workspace, foreach_add_


@OPTIMIZERS.register("gd")
class GD(RuleOptimizer):
    """Gradient descent: θ ← θ − η·g on batches of the whole training set; see
    `dualml.algorithms.optim.GD`."""

    rule_type = rules.GD

    @staticmethod
    def is_one_operation(group: Group) -> bool:
        """Return True: θ ← θ − η·g is a single pass over memory."""
        return True

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
        """Subtract ``lr`` times the gradients ``g`` from the parameters ``p`` in place; there is no
        state."""
        foreach_add_(p, g, -lr)
