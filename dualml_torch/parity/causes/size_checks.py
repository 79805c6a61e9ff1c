"""Size checks for packed sequences and weight norms: torch trusts their sizes, and reads or writes
out of bounds if they are wrong."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch

PACKS, UNPACKS = "_pack_padded_sequence", "_pad_packed_sequence"
RECURRENT = ("lstm", "gru", "rnn_tanh", "rnn_relu")
#: Functions of direction v, length g and axis ``dim``.
WEIGHT_NORMS = ("_weight_norm", "_weight_norm_interface")


def with_size_checks(func: Callable[..., Any], name: str) -> Callable[..., Any]:
    """Return the function with a check of the sizes of packed sequences or of a weight norm; a
    function that takes neither, or that has the check, as it is."""
    if isinstance(func, partial):
        return func
    if name in WEIGHT_NORMS:
        return partial(call_weight_norm, func)
    return partial(call_checked, func, name) if name in (PACKS, UNPACKS, *RECURRENT) else func


def call_weight_norm(
    func: Callable[..., Any], v: torch.Tensor, g: torch.Tensor, dim: int = 0
) -> Any:
    """Call a weight norm and return its result.

    Args:
        v: direction.
        g: length, of the shape of ``v`` with 1 in place of all sizes but that of axis ``dim``.

    Raises:
        ValueError: a length of another shape.
    """
    sizes = tuple(size if axis == dim else 1 for axis, size in enumerate(v.shape))
    if dim != -1 and g.shape != sizes:  # torch computes -1, all axes, by functions that check
        raise ValueError(f"{tuple(g.shape)} is no length of {tuple(v.shape)} along axis {dim}")
    return func(v, g, dim)


def call_checked(func: Callable[..., Any], name: str, *args: Any, **kwargs: Any) -> Any:
    """Check the sizes of packed sequences, the first two arguments, call the function and return
    its result.

    Raises:
        ValueError: sizes that do not match the data.
    """
    data, sizes = args[:2]
    if name == PACKS:
        batch_first = args[2] if len(args) > 2 else kwargs.get("batch_first", False)
        batch, length = data.shape[:2] if batch_first else data.shape[1::-1]
        if sizes.dtype != torch.int64 or sizes.shape != (batch,) or int(sizes.max()) > length:
            raise ValueError(f"lengths of {batch} sequences of at most {length}: {sizes}")
    elif isinstance(sizes, torch.Tensor) and not sizes.dtype.is_floating_point:
        falling = sizes.ndim == 1 and bool((sizes.diff() <= 0).all()) and int(sizes[-1]) > 0
        if sizes.dtype != torch.int64 or not falling or int(sizes.sum()) != len(data):
            raise ValueError(f"sizes of {len(data)} rows, falling: {sizes}")
    return func(*args, **kwargs)
