"""AdamW in MindSpore: Adam with weight decay decoupled from the gradient."""

from __future__ import annotations

from mindspore import ops

from dualml.algorithms import optim as rules
from dualml_ms.algorithms.optim.adam import Adam
from dualml_ms.algorithms.optim.base import OPTIMIZERS


@OPTIMIZERS.register("adamw")
class AdamW(Adam):
    """AdamW: θ ← (1 − ηλ)·θ, then Adam without coupled decay; see
    `dualml.algorithms.optim.AdamW`."""

    rule_type = rules.AdamW

    def decay(self, p, g, decay, lr):
        """Subtract ``lr`` · ``decay`` · ``p`` from the parameter ``p`` in place; return the
        gradient ``g`` unchanged."""
        ops.assign_sub(p, lr * decay * p)
        return g
