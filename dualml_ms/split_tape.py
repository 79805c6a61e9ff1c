"""What the forward pass of a part of a split model keeps for its backward pass."""

from __future__ import annotations

from dualml.model.layers import Flatten, ReLU, Tanh
from dualml_ms.model.network import Part

#: Whose derivative is known from what they gave; of any other layer, from what it took.
LAYER, TANH, RELU = range(3)
SLOPES = {Tanh: TANH, ReLU: RELU}


class Tape:
    """What a segment's forward pass leaves for its backward pass.

    Of the stacks before the first layer and after each of them, numbered from 0, the tops that some
    layer's derivative needs: what Tanh and ReLU gave, what any other layer took. What Flatten gave
    is made again of what it took: no copy of it is kept.

    Attributes:
        first: the first layer that a gradient flows through, minus one.
        kept: the numbers of those tops.
        of: layer → number of the top it goes back from.
    """

    def __init__(self, part: Part, wanted: bool) -> None:
        kinds = [type(layer) for _, layer in part.layers]
        weighted = [i for i, cell in enumerate(part.order) if cell.trainable_params()]
        self.first = -1 if wanted else min(weighted, default=len(kinds))
        self.slopes = tuple(SLOPES.get(kind, LAYER) for kind in kinds)
        self.flat = tuple(kind is Flatten for kind in kinds)
        self.of = [i if slope == LAYER else i + 1 for i, slope in enumerate(self.slopes)]
        for i in range(len(self.of)):
            while self.of[i] and self.flat[self.of[i] - 1]:
                self.of[i] -= 1
        used = [at for i, at in enumerate(self.of) if i >= self.first and not part.kinds[i]]
        self.kept = tuple(sorted(set(used)))
