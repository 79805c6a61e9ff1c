"""AdamW in PyTorch: Adam with weight decay decoupled from the gradient."""

from __future__ import annotations

from dualml.algorithms import optim as rules
from dualml_torch.algorithms.optim.adam import Adam
from dualml_torch.algorithms.optim.base import OPTIMIZERS
from dualml_torch.algorithms.optim.foreach import List, Number, Workspace, foreach_mul_


@OPTIMIZERS.register("adamw")
class AdamW(Adam):
    """AdamW: θ ← (1 − ηλ)·θ, then Adam without coupled decay; see
    `dualml.algorithms.optim.AdamW`."""

    rule_type = rules.AdamW

    @staticmethod
    def decay(p: List, g: List, weight_decay: float, keep: Number, workspace: Workspace) -> List:
        """Multiply ``p`` by ``keep`` = 1 − η·λ in place and return the gradients ``g`` unchanged;
        ``weight_decay`` and ``workspace`` are ignored."""
        foreach_mul_(p, keep)
        return g
