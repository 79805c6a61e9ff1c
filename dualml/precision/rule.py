"""Which values around the layers of a model are held in the lower type."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from dualml.model.base import Layer, Way
from dualml.model.layers import Branch, Merge, Swap
from dualml.model.spec import parameters

#: Of the values that the layers of a model hand on, the top last: which are of the lower type.
Stack = tuple[bool, ...]


class Held(NamedTuple):
    """Around one layer: whether a value is of the lower type, else of float32.

    Attributes:
        before: what comes to the layer; one of `Way.PRODUCT` casts it then.
        after: what it gives out.
        branch: of `Merge`, the value that was kept.
    """

    before: bool
    after: bool
    branch: bool = False


def holding(layers: Sequence[tuple[str, Layer]], before: Stack = (False,)) -> list[Held]:
    """For each of some consecutive layers.

    Args:
        before: which values on the stack before them are of the lower type, the top last; a whole
            model takes samples, which are float32 or tokens.

    Example:
        >>> from dualml.model import model
        >>> [(name, *held) for (name, _), held in
        ...  zip(model("softmax").layers, holding(model("softmax").layers))]
        [('flatten', False, False, False), ('fc', False, True, False)]
    """
    around, stack = [], before
    for _, layer in layers:
        after = through(layer, stack)
        branch = isinstance(layer, Merge) and stack[-2]
        around.append(Held(stack[-1], after[-1], branch))
        stack = after
    return around


def through(layer: Layer, stack: Stack) -> Stack:
    """Which values on the stack after a layer are of the lower type, from those before it."""
    *kept, top = stack
    if isinstance(layer, Branch):
        return (*stack, top)
    if isinstance(layer, Merge):
        return (*kept[:-1], top and kept[-1])
    if isinstance(layer, Swap):
        return (*kept[:-1], top, kept[-1])
    return (*kept, layer.way is Way.PRODUCT or (top and layer.way is Way.SAME))


def cast_parameters(layers: Sequence[tuple[str, Layer]]) -> list[str]:
    """Canonical names of the weights that are cast to the lower type."""
    return list(parameters([item for item in layers if item[1].way is Way.PRODUCT]))


def held_lower(layers: Sequence[tuple[str, Layer]]) -> list[str]:
    """Names of the layers that give the lower type out."""
    around = zip(layers, holding(layers), strict=True)
    return [name for (name, _), held in around if held.after]
