"""Bytes of the memory behind arrays, each piece of memory counted once."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from dualml.backend.reference.types import Array


def owned_bytes(held: Any, exclude: Iterable[Array] = ()) -> int:
    """Return the bytes of the memory behind all arrays inside nested containers, each piece of
    memory once: a view counts as the whole array that owns its memory.

    Args:
        exclude: arrays whose memory does not count.
    """
    others = {id(base_array(a)) for a in exclude}
    wholes = {id(w): w for w in map(base_array, find_arrays(held))}
    return sum(w.nbytes for key, w in wholes.items() if key not in others)


def nbytes(held: Any) -> int:
    """Return the bytes of all arrays inside nested containers; a view counts only its own elements,
    and memory that several arrays share counts several times."""
    return sum(a.nbytes for a in find_arrays(held))


def base_array(a: Array) -> Array:
    """Return the array that owns the memory of ``a``: its base, or ``a`` itself."""
    return a.base if isinstance(a.base, np.ndarray) else a


def find_arrays(value: Any) -> list[Array]:
    """Return all arrays inside nested dicts, lists and tuples, in order; other objects have
    none."""
    if isinstance(value, np.ndarray):
        return [value]
    if isinstance(value, dict):
        value = list(value.values())
    return (
        [a for item in value for a in find_arrays(item)] if isinstance(value, list | tuple) else []
    )
