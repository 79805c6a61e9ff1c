"""AdamW: Adam with the weight decay taken out of the gradient."""

from __future__ import annotations

from mindspore import ops

from dualml import optim as rules
from dualml_ms.optim.adam import Adam
from dualml_ms.optim.base import OPTIMIZERS


@OPTIMIZERS.register("adamw")
class AdamW(Adam):
    """θ ← (1 − ηλ)·θ, then Adam with the gradient untouched; see `dualml.optim.AdamW`."""

    rule_type = rules.AdamW

    def decay(self, p, g, decay, lr):
        """The gradient as it is: of ``p`` goes the share ``lr`` · ``decay``."""
        ops.assign_sub(p, lr * decay * p)
        return g
