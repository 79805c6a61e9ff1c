"""How many bytes a forward pass keeps for its backward pass, in closed form.

A derivative is made from what a layer took or what it gave, and from what only it knows (a mean, a
mask, a softmax). A value that two layers need is kept once, and samples, labels and parameters are
not counted. Which layer keeps what is a fact of an implementation: each has a table of its own.

Of layers that are computed again (`dualml.model.recompute`) what goes into the first of them is
kept, with the masks of their Dropout layers and, if one of them passes over padding, where a sample
has tokens.
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

MASK = 4  # bytes of a number of a mask


@dataclass(frozen=True)
class Keeps:
    """What a layer keeps of a sample.

    Attributes:
        taken, given: whether the value that it takes, or that it gives.
        own: layer, shapes of what it takes and gives → bytes of what no other layer has.
        view: whether what it gives is the memory of what it takes.
    """

    taken: bool = False
    given: bool = False
    own: Callable[[Any, Shape, Shape], int] = lambda layer, before, after: 0
    view: bool = False


#: Of one layer, if it depends on its settings.
Rule = Keeps | Callable[[Any], Keeps]


def mask_bytes(layer: Dropout, before: Shape, after: Shape) -> int:
    """`Keeps.own` of Dropout: its mask in float32."""
    return MASK * math.prod(after)


def kept(
    spec: ModelSpec, table: Mapping[type[Layer], Rule], width: int, groups: Groups = ()
) -> int | None:
    """Bytes that one sample keeps; None for a model with a layer of which that is not known.

    Args:
        width: bytes of a number.
        groups: layers that are computed again.
    """
    shapes = spec.shapes()
    whole = slice(0, len(spec.layers))
    plain = Stretch(whole, again=False, takes=1, masks=slice(0), here=False)
    sizes, held, own = [0], set[int](), 0  # of every value; which are kept; the samples are no. 0
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
