"""Bytes that a forward pass saves for its backward pass, in closed form.

A layer's derivative is computed from its input or its output, and from values that only the layer
has (a mean, a mask, a softmax). A value that two layers need is saved once; samples, labels and
parameters are not counted. What each layer saves depends on the implementation: each has its own
table.

Of layers that are recomputed (`dualml.algorithms.model.recompute`) only the input of the first one
is saved, with the masks of their Dropout layers and, if one of them skips padding, the mask of each
sample's tokens.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from dualml.algorithms.model.base import Layer, Shape
from dualml.algorithms.model.layers import Branch, Dropout, Merge
from dualml.algorithms.model.recompute import Groups, LayerSpan, layer_spans
from dualml.algorithms.model.spec import ModelSpec

MASK = 4  # bytes per element of a mask


@dataclass(frozen=True)
class SavedForBackward:
    """Tensors that a layer saves of each sample for its backward pass.

    Attributes:
        saves_input, saves_output: whether it saves its input, or its output.
        extra_bytes: function of the layer and the shapes of its input and output → bytes that no
            other layer has.
        is_view: whether its output shares the memory of its input.
    """

    saves_input: bool = False
    saves_output: bool = False
    extra_bytes: Callable[[Any, Shape, Shape], int] = lambda layer, before, after: 0
    is_view: bool = False


#: What a layer saves; a function of the layer where it depends on its settings.
Rule = SavedForBackward | Callable[[Any], SavedForBackward]


def mask_bytes(layer: Dropout, before: Shape, after: Shape) -> int:
    """Return the bytes of a Dropout layer's float32 mask of one sample; a function for
    `SavedForBackward.extra_bytes`."""
    return MASK * math.prod(after)


def saved_bytes_per_sample(
    spec: ModelSpec, table: Mapping[type[Layer], Rule], width: int, groups: Groups = ()
) -> int | None:
    """Return the bytes that one sample's forward pass saves, the sample itself not counted; None
    for a model with a layer that ``table`` lacks, unless it is recomputed.

    Args:
        width: bytes per element.
        groups: layers that are recomputed.
    """
    shapes = spec.shapes()
    whole = slice(0, len(spec.layers))
    plain = LayerSpan(
        whole, recomputed=False, input_count=1, masks=slice(0), needs_padding_mask=False
    )
    sizes, held, own = [0], set[int](), 0  # of every value; saved values; value 0: the samples
    stack, shape = [0], spec.input_shape
    positions = 0
    for some in layer_spans(spec.layers, groups) or (plain,):
        if some.recomputed:
            held |= set(stack[-some.input_count :])
            positions = spec.input_shape[0] if some.needs_padding_mask else positions
        for name, layer in spec.layers[some.layers]:
            before, shape = shape, shapes[name]
            rule = table.get(type(layer))
            if rule is None and not some.recomputed:
                return None
            rule = rule or SavedForBackward()
            rule = rule if isinstance(rule, SavedForBackward) else rule(layer)
            taken = stack[-1] if isinstance(layer, Branch) else stack.pop()
            stack = stack[:-1] if isinstance(layer, Merge) else stack
            if rule.is_view:
                stack.append(taken)
            else:
                sizes.append(width * math.prod(shape))
                stack.append(len(sizes) - 1)
            if not some.recomputed:
                held |= {taken} if rule.saves_input else set()
                held |= {stack[-1]} if rule.saves_output else set()
                own += rule.extra_bytes(layer, before, shape)
            elif isinstance(layer, Dropout):
                own += mask_bytes(layer, before, shape)
    return sum(sizes[value] for value in held) + own + positions
