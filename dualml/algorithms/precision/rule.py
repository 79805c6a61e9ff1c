"""Propagation of low precision through a model: the types of the values around each layer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from dualml.algorithms.model.base import DtypePolicy, Layer
from dualml.algorithms.model.layers import Branch, Merge, Swap
from dualml.algorithms.model.spec import parameter_shapes

#: For each value on the stack between layers, the top last: whether it is in low precision.
Stack = tuple[bool, ...]


class LayerPrecision(NamedTuple):
    """Precision of the values around one layer: True for the low-precision type, False for float32.

    Attributes:
        before: the layer's input, as it arrives; a layer of `DtypePolicy.PRODUCT` then casts it.
        after: the layer's output.
        branch: for a `Merge`, the value that was kept.
    """

    before: bool
    after: bool
    branch: bool = False


def layer_precisions(
    layers: Sequence[tuple[str, Layer]], before: Stack = (False,)
) -> list[LayerPrecision]:
    """Return the precision around each of some consecutive layers.

    Args:
        before: which values on the stack before them are in low precision, the top last; a whole
            model takes samples, which are float32 or tokens.

    Example:
        >>> from dualml.algorithms.model import model
        >>> layers = model("softmax").layers
        >>> [(name, *held) for (name, _), held in zip(layers, layer_precisions(layers))]
        [('flatten', False, False, False), ('fc', False, True, False)]
    """
    around, stack = [], before
    for _, layer in layers:
        after = propagate_precision(layer, stack)
        branch = isinstance(layer, Merge) and stack[-2]
        around.append(LayerPrecision(stack[-1], after[-1], branch))
        stack = after
    return around


def propagate_precision(layer: Layer, stack: Stack) -> Stack:
    """Return which values on the stack after ``layer`` are in low precision, from those before it,
    ``stack``; the top is last in both."""
    *kept, top = stack
    if isinstance(layer, Branch):
        return (*stack, top)
    if isinstance(layer, Merge):
        return (*kept[:-1], top and kept[-1])
    if isinstance(layer, Swap):
        return (*kept[:-1], top, kept[-1])
    return (
        *kept,
        layer.dtype_policy is DtypePolicy.PRODUCT
        or (top and layer.dtype_policy is DtypePolicy.SAME),
    )


def cast_parameter_names(layers: Sequence[tuple[str, Layer]]) -> list[str]:
    """Return the canonical names of the parameters, biases included, of the layers of products:
    they are cast to the low-precision type."""
    return list(
        parameter_shapes([item for item in layers if item[1].dtype_policy is DtypePolicy.PRODUCT])
    )


def low_precision_layers(layers: Sequence[tuple[str, Layer]]) -> list[str]:
    """Return the names of those of the layers whose output is in low precision, in their order; the
    samples before them count as float32."""
    around = zip(layers, layer_precisions(layers), strict=True)
    return [name for (name, _), held in around if held.after]
