"""What all layers of the neutral model language have in common."""

from __future__ import annotations

from dataclasses import dataclass, fields
from enum import Enum
from typing import Any, ClassVar

from dualml.errors import UserError

Shape = tuple[int, ...]


class Way(Enum):
    """What a layer does where a model is trained in a lower type; see `dualml.precision`."""

    PRODUCT = "casts its input and weights to the type, and gives the type out"
    SINGLE = "float32 in and out"
    PROMOTE = "the wider type of the values that meet"
    SAME = "the type that it gets"


@dataclass(frozen=True)
class Layer:
    """A layer without parameters that keeps the shape; the others say what they do instead."""

    way: ClassVar[Way] = Way.SAME
    #: Of so many equal blocks the last axis of its input is made: a slice of it has a part of each.
    blocks: ClassVar[int] = 1

    def parameters(self) -> dict[str, Shape]:
        """Last part of a parameter's name → its shape."""
        return {}

    def buffers(self) -> dict[str, Shape]:
        """Last part of the name of what it keeps beside its parameters, and no optimizer sees (the
        running statistics of batch normalisation) → its shape."""
        return {}

    def holder(self, name: str, leaf: str = "weight") -> str:
        """The layer whose name a parameter carries: ``name``, or another that it is shared with."""
        return name

    def output_shape(self, shape: Shape) -> Shape:
        """Shape of the output for an input of ``shape``; a `UserError` if it does not fit."""
        return shape

    @property
    def padded(self) -> bool:
        """Whether it takes, besides, which positions hold a token."""
        return bool(getattr(self, "masked", False))

    def describe(self) -> dict[str, Any]:
        """Type and fields, without those at their default that older descriptions do not know."""
        values = [(f, getattr(self, f.name)) for f in fields(self)]
        shown = {f.name: value for f, value in values if value != f.default or f.metadata}
        return {"type": type(self).__name__, **shown}


def check(fits: bool, takes: str, shape: Shape) -> None:
    """Raises `UserError` for an input shape that a layer does not take."""
    if not fits:
        raise UserError(f"{takes} per sample; received {shape}")
