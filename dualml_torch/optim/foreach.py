"""Operations on lists of tensors that take their number as a float or as a tensor.

Eagerly the changing numbers of a rule are Python floats. Compiled they are 0-dim tensors,
because every new value of a float would be compiled anew; the ``_foreach_`` functions then are no
help (the compiler breaks the graph at a tensor in the place of their number) and not needed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

List = list[Tensor]
Number = float | Tensor
Group = Mapping[str, Any]
Room = Callable[[List], List | None]


def add(x: List, y: List, size: Number) -> None:
    """x += size·y."""
    if isinstance(size, Tensor):
        for a, b in zip(x, y, strict=True):
            a.add_(size * b)
    else:
        torch._foreach_add_(x, y, alpha=size)


def add_ratio(x: List, y: List, z: List, size: Number) -> None:
    """x += size·y/z."""
    if isinstance(size, Tensor):
        for a, b, c in zip(x, y, z, strict=True):
            a.add_(size * (b / c))
    else:
        torch._foreach_addcdiv_(x, y, z, size)


def shift(x: List, size: Number) -> None:
    """x += size."""
    if isinstance(size, Tensor):
        for a in x:
            a.add_(size)
    else:
        torch._foreach_add_(x, size)


def scale(x: List, size: Number) -> None:
    """x ← size·x."""
    if isinstance(size, Tensor):
        for a in x:
            a.mul_(size)
    else:
        torch._foreach_mul_(x, size)


def plus(x: List, y: List, size: float, room: List | None) -> List:
    """x + size·y."""
    if room is None:
        return torch._foreach_add(x, y, alpha=size)
    return [torch.add(a, b, alpha=size, out=c) for a, b, c in zip(x, y, room, strict=True)]


def root(x: List, room: List | None) -> List:
    """√x."""
    if room is None:
        return torch._foreach_sqrt(x)
    return [torch.sqrt(a, out=b) for a, b in zip(x, room, strict=True)]
