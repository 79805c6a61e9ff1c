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
        """Return the gradient unchanged; shrink ``p`` by the share ``lr`` · ``decay``."""
        ops.assign_sub(p, lr * decay * p)
        return g
