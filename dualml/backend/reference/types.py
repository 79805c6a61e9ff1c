"""Array types and parameter keys of the reference."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Params = dict[str, Array]
#: Key of a layer's parameters: mask of the positions that hold a token, shape (B, T).
TOKEN_MASK = "here"
#: Extra key in a recurrent layer's parameters: initial states of the samples, (B, S, H).
STATE = "state"
#: Extra key in a layer with running statistics: whether it is in training mode.
LEARNING = "learning"


def float64_copies(arrays: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    """Return float64 copies of arrays of any float type."""
    return {name: np.array(a, np.float64) for name, a in arrays.items()}


def as_matrix(x: Array) -> Array:
    """Reshape an array (…, K) to a matrix (N, K); a view where possible."""
    return x.reshape(-1, x.shape[-1])
