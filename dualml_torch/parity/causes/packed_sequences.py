"""Size checks for packed sequences: torch trusts their sizes and reads out of bounds if they are
wrong."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch

PACKS, UNPACKS = "_pack_padded_sequence", "_pad_packed_sequence"
RECURRENT = ("lstm", "gru", "rnn_tanh", "rnn_relu")


def with_size_checks(func: Callable[..., Any], name: str) -> Callable[..., Any]:
    """Return the function with a check of the sizes of packed sequences; a function that takes
    none, or that has the check, as it is."""
    if name not in (PACKS, UNPACKS, *RECURRENT) or isinstance(func, partial):
        return func
    return partial(call_checked, func, name)


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
