"""The memory behind arrays, each piece once, whatever holds them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from dualml.reference.types import Array


def taped(held: Any, but: Iterable[Array] = ()) -> int:
    """Bytes of all arrays inside nested containers; of views the memory behind them.

    Args:
        but: arrays whose memory does not count.
    """
    others = {id(whole(a)) for a in but}
    wholes = {id(w): w for w in map(whole, arrays(held))}
    return sum(w.nbytes for key, w in wholes.items() if key not in others)


def nbytes(held: Any) -> int:
    """Bytes of all arrays inside nested containers, as they are."""
    return sum(a.nbytes for a in arrays(held))


def whole(a: Array) -> Array:
    """The array whose memory this one looks at."""
    return a.base if isinstance(a.base, np.ndarray) else a


def arrays(value: Any) -> list[Array]:
    """All arrays inside nested containers."""
    if isinstance(value, np.ndarray):
        return [value]
    if isinstance(value, dict):
        value = list(value.values())
    return [a for item in value for a in arrays(item)] if isinstance(value, list | tuple) else []
