"""The values that the forward pass of a part of a split model saves for its backward pass."""

from __future__ import annotations

from collections.abc import Sequence

from dualml.algorithms.model.layers import Flatten, ReLU, Tanh
from dualml.algorithms.model.recompute import LayerSpan
from dualml_ms.algorithms.model.network import BRANCH, CARRY, CELL, MERGE, ModelPart

#: Kinds of derivatives: of Tanh and ReLU from their output, of any other layer from its input.
LAYER, TANH, RELU = range(3)
SLOPES = {Tanh: TANH, ReLU: RELU}


class SegmentTape:
    """The values that a segment's forward pass saves for its backward pass.

    Stacks (see `ModelPart`) before the first layer and after each layer are numbered from 0; so are
    their tops. Saved are the tops that some layer's derivative needs: the output of Tanh and ReLU,
    the input of any other layer. The output of Flatten is computed again from its input, which is
    saved instead. For layers that are recomputed the input of the first one is saved in place of
    the values inside. On the stack before all layers the values below the top have the numbers −1,
    −2, …

    Args:
        wanted: whether the gradient of the segment's input is needed.
        spans: the spans of the part, recomputed or not.

    Attributes:
        first: the first layer of the backward pass, whose input needs no gradient; −1 if the
            segment's input does.
        kept: the numbers of the saved tops, in order.
        slopes: layer → kind of its derivative, `LAYER`, `TANH` or `RELU`.
        flat: layer → whether it is a Flatten.
        top_numbers: layer → number of the top it goes back from.
        recomputed_spans: the spans that are recomputed for some derivative.
        entries: for each of them the numbers of its input values.
    """

    def __init__(self, part: ModelPart, wanted: bool, spans: Sequence[LayerSpan] = ()) -> None:
        kinds = [type(layer) for _, layer in part.layers]
        weighted = [i for i, cell in enumerate(part.order) if cell.trainable_params()]
        self.first = -1 if wanted else min(weighted, default=len(kinds))
        self.slopes = tuple(SLOPES.get(kind, LAYER) for kind in kinds)
        self.flat = tuple(kind is Flatten for kind in kinds)
        begins = {i: s.layers.start for s in spans if s.recomputed for i in layer_range(s)}
        self.top_numbers = [i if slope == LAYER else i + 1 for i, slope in enumerate(self.slopes)]
        for i in range(len(self.top_numbers)):
            while self.top_numbers[i] > begins.get(i, 0) and self.flat[self.top_numbers[i] - 1]:
                self.top_numbers[i] -= 1
        cells = {i for i, kind in enumerate(part.kinds) if kind in (CELL, CARRY)}
        used = {i for i in cells if i >= self.first}
        inside = {i for i in used if i in begins and self.top_numbers[i] > begins[i]}
        self.recomputed_spans = [
            s for s in spans if s.recomputed and not inside.isdisjoint(layer_range(s))
        ]
        stacks = value_numbers(part)
        self.entries = [stacks[s.layers.start][-s.input_count :] for s in self.recomputed_spans]
        kept = {self.top_numbers[i] for i in used - inside} | {
            n for own in self.entries for n in own
        }
        self.kept = tuple(sorted(kept))


def layer_range(some: LayerSpan) -> range:
    """Return the numbers of a span's layers within its part, counted from 0."""
    return range(some.layers.start, some.layers.stop)


def value_numbers(part: ModelPart) -> list[tuple[int, ...]]:
    """Return, for the stack before the first layer and after each layer, the numbers of its values,
    top last; a value has the number of layers that it follows, see `SegmentTape`."""
    stack = tuple(range(1 - part.depth, 1))
    stacks = [stack]
    for i, kind in enumerate(part.kinds):
        if kind == BRANCH:
            stack = (*stack[:-1], i + 1, i + 1)
        else:
            stack = (*stack[: -2 if kind == MERGE else -1], i + 1)
        stacks.append(stack)
    return stacks
