"""Operations on lists of tensors whose number is a float or a tensor.

In eager mode the changing numbers of a rule are Python floats. Compiled they are 0-dim tensors,
because every new value of a float would be compiled anew; the ``_foreach_`` functions are then
neither usable (the compiler breaks the graph at a tensor in place of their number) nor needed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

List = list[Tensor]
Number = float | Tensor
Group = Mapping[str, Any]
#: Returns scratch tensors shaped like the given ones, or None to allocate new ones.
Workspace = Callable[[List], List | None]


def foreach_add_(x: List, y: List, size: Number) -> None:
    """Add ``size`` times the tensors of ``y`` to those of ``x`` in place: x += size·y."""
    if isinstance(size, Tensor):
        for a, b in zip(x, y, strict=True):
            a.add_(size * b)
    else:
        torch._foreach_add_(x, y, alpha=size)


def foreach_addcdiv_(x: List, y: List, z: List, size: Number) -> None:
    """Add ``size`` times the quotients of ``y`` and ``z`` to ``x`` in place: x += size·y/z."""
    if isinstance(size, Tensor):
        for a, b, c in zip(x, y, z, strict=True):
            a.add_(size * (b / c))
    else:
        torch._foreach_addcdiv_(x, y, z, size)


def foreach_add_scalar_(x: List, size: Number) -> None:
    """Add the number ``size`` to every element of the tensors of ``x`` in place: x += size."""
    if isinstance(size, Tensor):
        for a in x:
            a.add_(size)
    elif (number := typed_scalar(x, size)) is not None:
        torch._foreach_add_(x, number, alpha=1.0)
    else:
        torch._foreach_add_(x, size)


def foreach_mul_(x: List, size: Number) -> None:
    """Multiply the tensors of ``x`` by the number ``size`` in place: x ← size·x."""
    if isinstance(size, Tensor):
        for a in x:
            a.mul_(size)
    elif (number := typed_scalar(x, size)) is not None:
        torch._foreach_mul_(x, number)
    else:
        torch._foreach_mul_(x, size)


def typed_scalar(x: List, size: float) -> Tensor | None:
    """Return ``size`` as a 0-dim tensor of the type of ``x`` if all of ``x`` are float32, or all
    float64, on a CPU, else None. A float is converted anew for each tensor, which takes longer than
    the update of a small one; other types would lose digits."""
    kind = x[0].dtype
    if kind not in (torch.float32, torch.float64) or any(
        a.dtype is not kind or not a.is_cpu for a in x
    ):
        return None
    return torch.tensor(size, dtype=kind)


def foreach_add(x: List, y: List, size: float, workspace: List | None) -> List:
    """Return x + size·y, as new tensors, or written into ``workspace`` if that is not None."""
    if workspace is None:
        return torch._foreach_add(x, y, alpha=size)
    return [torch.add(a, b, alpha=size, out=c) for a, b, c in zip(x, y, workspace, strict=True)]


def foreach_sqrt(x: List, workspace: List | None, eps: Number = 0.0) -> List:
    """Return √x, as new tensors, or written into ``workspace`` if that is not None. ``eps`` is not
    added: it says what number the caller adds next.

    MKL takes six times as long for roots of zeros, as in the state of tokens that have not occurred
    yet. With a workspace, where ``eps`` makes the difference vanish in rounding, the root of the
    smallest normal number is used instead.
    """
    if workspace is None:
        return torch._foreach_sqrt(x)
    roots = []
    for a, b in zip(x, workspace, strict=True):
        limits = torch.finfo(a.dtype)
        if isinstance(eps, float) and eps * limits.eps > 2 * math.sqrt(limits.tiny):
            roots.append(torch.clamp_min(a, limits.tiny, out=b).sqrt_())
        else:
            roots.append(torch.sqrt(a, out=b))
    return roots
