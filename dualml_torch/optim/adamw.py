"""AdamW: Adam with the weight decay taken out of the gradient."""

from __future__ import annotations

from dualml import optim as rules
from dualml_torch.optim.adam import Adam
from dualml_torch.optim.base import OPTIMIZERS
from dualml_torch.optim.foreach import List, Number, Room, scale


@OPTIMIZERS.register("adamw")
class AdamW(Adam):
    """θ ← (1 − ηλ)·θ, then Adam with the gradient untouched; see `dualml.optim.AdamW`."""

    rule_type = rules.AdamW

    @staticmethod
    def decay(p: List, g: List, weight_decay: float, keep: Number, room: Room) -> List:
        """The gradients ``g`` as they are; of ``p`` stays the share ``keep``, which has the
        ``weight_decay`` in it. It needs no ``room``."""
        scale(p, keep)
        return g
