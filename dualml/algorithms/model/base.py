"""Base class of all layers of the framework-neutral model language."""

from __future__ import annotations

from dataclasses import dataclass, fields
from enum import Enum
from typing import ClassVar

from dualml.common.errors import UserError
from dualml.common.json_types import JsonObject

Shape = tuple[int, ...]


class DtypePolicy(Enum):
    """Types of a layer's input and output in mixed-precision training; see
    `dualml.algorithms.precision`."""

    PRODUCT = "casts its input and weights to the type, and gives the type out"
    SINGLE = "float32 in and out"
    PROMOTE = "the wider type of the values that meet"
    SAME = "the type that it gets"


@dataclass(frozen=True)
class Layer:
    """Base class of layers; its defaults describe a layer without parameters that keeps the
    shape."""

    dtype_policy: ClassVar[DtypePolicy] = DtypePolicy.SAME
    #: Number of equal blocks along the last axis of its input; a slice takes part of each block.
    blocks: ClassVar[int] = 1

    def parameters(self) -> dict[str, Shape]:
        """Return the shape of each parameter by the last part of its name, such as ``weight``;
        empty for a layer without parameters."""
        return {}

    def buffers(self) -> dict[str, Shape]:
        """Return the shape of each buffer by the last part of its name. Buffers are tensors that no
        optimizer changes, such as the running statistics of batch normalisation."""
        return {}

    def parameter_owner(self, name: str, leaf: str = "weight") -> str:
        """Return the name of the layer that owns the parameter ``leaf`` of the layer called
        ``name``: ``name`` itself, or another layer that it shares the parameter with."""
        return name

    def output_shape(self, shape: Shape) -> Shape:
        """Return the shape of the output for an input of ``shape``, both without the batch axis;
        raise `UserError` if it does not fit."""
        return shape

    @property
    def needs_padding_mask(self) -> bool:
        """Whether the layer also takes a mask of the positions that hold a token."""
        return bool(getattr(self, "masked", False))

    def describe(self) -> JsonObject:
        """Return the class's name as ``type``, and the fields, as JSON values. A field at its
        default is left out, unless its metadata mark it as always described."""
        values = [(f, getattr(self, f.name)) for f in fields(self)]
        shown = {f.name: value for f, value in values if value != f.default or f.metadata}
        return {"type": type(self).__name__, **shown}


def check_input_shape(fits: bool, takes: str, shape: Shape) -> None:
    """Raise `UserError` unless ``fits``: the message says what the layer ``takes`` and which
    ``shape`` it received."""
    if not fits:
        raise UserError(f"{takes} per sample; received {shape}")
