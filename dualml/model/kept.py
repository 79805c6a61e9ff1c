"""Bytes that a forward pass saves for its backward pass, in closed form.

A layer's derivative is computed from its input or its output, and from values that only the layer
has (a mean, a mask, a softmax). A value that two layers need is saved once; samples, labels and
parameters are not counted. What each layer saves depends on the implementation: each has its own
table.

Of layers that are recomputed (`dualml.model.recompute`) only the input of the first one is saved,
with the masks of their Dropout layers and, if one of them skips padding, the mask of each sample's
tokens.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from dualml.model.base import Layer, Shape
from dualml.model.layers import Branch, Dropout, Merge
from dualml.model.recompute import Groups, Stretch, stretches
from dualml.model.spec import ModelSpec

MASK = 4  # bytes per element of a mask


@dataclass(frozen=True)
class Keeps:
    """Tensors that a layer saves of each sample for its backward pass.

    Attributes:
        saves_input, saves_output: whether it saves its input, or its output.
        extra_bytes: function of the layer and the shapes of its input and output → bytes that no
            other layer has.
        is_view: whether its output shares the memory of its input.
    """

    taken: bool = False
    given: bool = False
    own: Callable[[Any, Shape, Shape], int] = lambda layer, before, after: 0
    view: bool = False


#: What a layer saves; a function of the layer where it depends on its settings.
Rule = Keeps | Callable[[Any], Keeps]


def mask_bytes(layer: Dropout, before: Shape, after: Shape) -> int:
    """Return the bytes of a Dropout layer's float32 mask; a function for
    `SavedForBackward.extra_bytes`."""
    return MASK * math.prod(after)


def kept(
    spec: ModelSpec, table: Mapping[type[Layer], Rule], width: int, groups: Groups = ()
) -> int | None:
    """Return the bytes that one sample's forward pass saves; None for a model with a layer that
    ``table`` lacks.

    Args:
        width: bytes per element.
        groups: layers that are recomputed.
    """
    shapes = spec.shapes()
    whole = slice(0, len(spec.layers))
    plain = Stretch(whole, again=False, takes=1, masks=slice(0), here=False)
    sizes, held, own = [0], set[int](), 0  # of every value; saved values; value 0: the samples
    stack, shape = [0], spec.input_shape
    positions = 0
    for some in stretches(spec.layers, groups) or (plain,):
        if some.again:
            held |= set(stack[-some.takes :])
            positions = spec.input_shape[0] if some.here else positions
        for name, layer in spec.layers[some.layers]:
            before, shape = shape, shapes[name]
            rule = table.get(type(layer))
            if rule is None and not some.again:
                return None
            rule = rule or Keeps()
            rule = rule if isinstance(rule, Keeps) else rule(layer)
            taken = stack[-1] if isinstance(layer, Branch) else stack.pop()
            stack = stack[:-1] if isinstance(layer, Merge) else stack
            if rule.view:
                stack.append(taken)
            else:
                sizes.append(width * math.prod(shape))
                stack.append(len(sizes) - 1)
            if not some.again:
                held |= {taken} if rule.taken else set()
                held |= {stack[-1]} if rule.given else set()
                own += rule.own(layer, before, shape)
            elif isinstance(layer, Dropout):
                own += mask_bytes(layer, before, shape)
    return sum(sizes[value] for value in held) + own + positions
