"""Which values around the layers of a model are held in the lower type."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from dualml.model.base import Layer, Way
from dualml.model.layers import Branch, Merge
from dualml.model.spec import parameters


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


def holding(layers: Sequence[tuple[str, Layer]]) -> list[Held]:
    """For each layer of a model, from its samples on, which are float32 or tokens.

    Example:
        >>> from dualml.model import model
        >>> [(name, *held) for (name, _), held in
        ...  zip(model("softmax").layers, holding(model("softmax").layers))]
        [('flatten', False, False, False), ('fc', False, True, False)]
    """
    around, kept, low = [], list[bool](), False
    for _, layer in layers:
        held = Held(low, after(layer, low))
        if isinstance(layer, Branch):
            kept.append(low)
        elif isinstance(layer, Merge):
            branch = kept.pop()
            held = Held(low, low and branch, branch)
        around.append(held)
        low = held.after
    return around


def after(layer: Layer, low: bool) -> bool:
    """Whether a layer gives the lower type out, from whether it gets it."""
    if layer.way is Way.PRODUCT:
        return True
    return low and layer.way is Way.SAME


def cast_parameters(layers: Sequence[tuple[str, Layer]]) -> list[str]:
    """Canonical names of the weights that are cast to the lower type."""
    return list(parameters([item for item in layers if item[1].way is Way.PRODUCT]))


def held_lower(layers: Sequence[tuple[str, Layer]]) -> list[str]:
    """Names of the layers that give the lower type out."""
    around = zip(layers, holding(layers), strict=True)
    return [name for (name, _), held in around if held.after]
