"""Shapes of what runs through a sequence of layers: a stack, which branches make deeper."""

from __future__ import annotations

from collections.abc import Sequence

from dualml.errors import UserError
from dualml.model.base import Layer, Shape
from dualml.model.layers import Branch, Merge


def parameters(layers: Sequence[tuple[str, Layer]]) -> dict[str, Shape]:
    """Canonical parameter name ``<layer>.<leaf>`` → shape, in layer order."""
    return {
        f"{name}.{leaf}": shape
        for name, layer in layers
        for leaf, shape in layer.parameters().items()
    }


def stacks(layers: Sequence[tuple[str, Layer]], entry: Sequence[Shape]) -> dict[str, list[Shape]]:
    """Layer name → shapes of the stack after it, the top last, for a stack ``entry`` before all.

    Raises:
        UserError: a layer that does not fit what is before it.
    """
    stack, found = list(entry), {}
    for name, layer in layers:
        try:
            stack = _after(layer, stack)
        except UserError as error:
            raise UserError(f"layer {name!r}: {error}") from None
        found[name] = stack
    return found


def _after(layer: Layer, stack: list[Shape]) -> list[Shape]:
    if isinstance(layer, Branch):
        return [*stack, stack[-1]]
    if not isinstance(layer, Merge):
        return [*stack[:-1], layer.output_shape(stack[-1])]
    if len(stack) < 2:
        raise UserError("Merge has no Branch before it")
    if stack[-1] != stack[-2]:
        raise UserError(f"Merge adds equal shapes; received {stack[-2]} and {stack[-1]}")
    return stack[:-1]
