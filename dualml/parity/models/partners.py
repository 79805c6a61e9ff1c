"""Tensors of two models as their frameworks list them, and what makes two of them one."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

Shape = tuple[int, ...]
Change = Literal["", "transpose", "reshape"]
#: MindSpore's words for what PyTorch calls otherwise; the last part of a name.
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
    """A parameter or buffer as its framework lists it.

    Attributes:
        name: dotted, as the framework calls it.
        trained: whether the optimizer changes it; running statistics and constants are not.
    """

    name: str
    shape: Shape
    trained: bool = True

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    def describe(self) -> dict[str, Any]:
        return {"name": self.name, "shape": list(self.shape), "trained": self.trained}


@dataclass(frozen=True)
class Pair:
    """Two names of one tensor.

    Attributes:
        how: ``asked``, ``role``, ``name``, ``word``, ``ending``, ``block`` or ``order``.
        change: what turns ``b``'s array into ``a``'s, and back.
    """

    a: str
    b: str
    how: str
    change: Change = ""

    def describe(self) -> dict[str, str]:
        return dict(vars(self))


@dataclass(frozen=True)
class Pairing:
    """All pairs, in the order of ``a``, and what has no partner and needs none.

    Attributes:
        left: names of buffers that only one side has (a mask, a table of positions), by side.
        alone: names of trained parameters that only one side has (a bias, an untied head), by side.
    """

    pairs: tuple[Pair, ...]
    left: tuple[tuple[str, ...], tuple[str, ...]] = ((), ())
    alone: tuple[tuple[str, ...], tuple[str, ...]] = ((), ())


def canonical(name: str) -> str:
    """The name with PyTorch's word at its end: ``norm.gamma`` → ``norm.weight``."""
    head, dot, last = name.rpartition(".")
    return head + dot + WORDS.get(last, last)


def fit(a: Shape, b: Shape) -> Change | None:
    """How an array of shape ``b`` becomes one of shape ``a``; None if it cannot.

    Example:
        >>> fit((8, 4), (4, 8)), fit((6, 6, 3), (6, 6, 1, 3)), fit((2, 6), (12,)), fit((2,), (3,))
        ('transpose', 'reshape', 'reshape', None)
    """
    if a == b:
        return ""
    if len(a) == len(b) == 2 and a == b[::-1]:
        return "transpose"
    return "reshape" if math.prod(a) == math.prod(b) and (merged(a, b) or merged(b, a)) else None


def merged(whole: Shape, parts: Shape) -> bool:
    """Whether every axis of one shape is a product of neighbouring axes of the other."""
    rest = [n for n in parts if n != 1]
    for length in (n for n in whole if n != 1):
        product = 1
        while product < length and rest:
            product *= rest.pop(0)
        if product != length:
            return False
    return not rest


def changed(array: NDArray[Any], change: Change, shape: Shape) -> NDArray[Any]:
    """An array in the other side's ``shape``; every change is its own way back."""
    if change == "transpose":
        return np.ascontiguousarray(array.T)
    return array.reshape(shape) if change == "reshape" else array
