"""Tensors of two models as their frameworks list them, and how one is converted to the other."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray
from pydantic import ConfigDict

from dualml.common.json_types import JsonObject
from dualml.parity.models.layouts import apply_words

#: Lets a strict record read a dataclass from JSON, which has tables and lists for tuples.
FROM_JSON = ConfigDict(strict=False)
Shape = tuple[int, ...]
#: Words of `dualml.parity.models.layouts`, joined by ``+``; empty for none.
Change = str
#: Last part of a name in MindSpore → PyTorch's term.
WORDS = {
    "gamma": "weight",
    "beta": "bias",
    "moving_mean": "running_mean",
    "moving_variance": "running_var",
    "embedding_table": "weight",
    "w": "weight",  # PReLU
}


@dataclass(frozen=True)
class Tensor:
    """A parameter or buffer, as its framework lists it.

    Attributes:
        name: the framework's dotted name.
        shape: shape of the tensor.
        trained: whether the optimizer changes it; False for running statistics and constants.
        is_column_piece: whether it is a piece of a matrix that is stored as (in, out).
    """

    __pydantic_config__ = FROM_JSON
    name: str
    shape: Shape
    trained: bool = True
    is_column_piece: bool = False

    @property
    def size(self) -> int:
        """Number of elements of the tensor."""
        return math.prod(self.shape)

    def describe(self) -> JsonObject:
        """Return name, shape and ``trained`` of the tensor as JSON."""
        return {"name": self.name, "shape": list(self.shape), "trained": self.trained}


@dataclass(frozen=True)
class TensorPair:
    """A tensor of side ``a`` and its partner on side ``b``, by name.

    Attributes:
        how: the rule that paired them: ``asked``, ``role``, ``name``, ``word``, ``ending``,
            ``block`` or ``order``.
        change: the conversion of ``b``'s array to ``a``'s layout, see
            `dualml.parity.models.layouts`.
    """

    a: str
    b: str
    how: str
    change: Change = ""

    def describe(self) -> dict[str, str]:
        """Return the pair as JSON."""
        return dict(vars(self))


@dataclass(frozen=True)
class Pairing:
    """All pairs of two models' tensors, in the order of ``a``, and the tensors that only one side
    has.

    Attributes:
        unpaired_buffers: names of buffers that only one side has (a mask, a table of positions), by
            side.
        unpaired_parameters: names of trained parameters that only one side has (a bias, an untied
            head), by side.
    """

    pairs: tuple[TensorPair, ...]
    unpaired_buffers: tuple[tuple[str, ...], tuple[str, ...]] = ((), ())
    unpaired_parameters: tuple[tuple[str, ...], tuple[str, ...]] = ((), ())


def canonical_name(name: str) -> str:
    """Return a dotted name with its last part in PyTorch's terms: ``norm.gamma`` →
    ``norm.weight``."""
    head, dot, last = name.rpartition(".")
    return head + dot + WORDS.get(last, last)


def find_change(a: Shape, b: Shape) -> Change | None:
    """Return how an array of shape ``b`` becomes one of shape ``a``: ``transpose``, ``reshape``, or
    empty if the shapes are equal; None if it cannot.

    Example:
        >>> find_change((8, 4), (4, 8)), find_change((6, 6, 3), (6, 6, 1, 3))
        ('transpose', 'reshape')
        >>> find_change((2, 6), (12,)), find_change((2,), (3,))
        ('reshape', None)
    """
    if a == b:
        return ""
    if len(a) == len(b) == 2 and a == b[::-1]:
        return "transpose"
    if math.prod(a) == math.prod(b) and (is_merge_of(a, b) or is_merge_of(b, a)):
        return "reshape"
    return None


def is_merge_of(whole: Shape, parts: Shape) -> bool:
    """Return whether every axis of ``whole`` is a product of neighbouring axes of ``parts``, in
    order and with none left; axes of length one do not count."""
    rest = [n for n in parts if n != 1]
    for length in (n for n in whole if n != 1):
        product = 1
        while product < length and rest:
            product *= rest.pop(0)
        if product != length:
            return False
    return not rest


def apply_change(array: NDArray[Any], change: Change, shape: Shape) -> NDArray[Any]:
    """Return an array converted to the other side's ``shape``, the array itself if ``change`` is
    empty; `dualml.parity.models.layouts.invert_change` returns the change that goes back."""
    return apply_words(array, change.split("+"), shape) if change else array
