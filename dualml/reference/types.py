"""What the referee computes with."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Params = dict[str, Array]
#: Beside the parameters of a `padded` layer: which positions hold a token, (B, T).
HERE = "here"
#: Beside those of a recurrent layer: the state that the samples begin with, (B, S, H).
STATE = "state"
#: Beside the parameters and buffers of a layer with running statistics: whether it is trained.
LEARNING = "learning"


def copies(arrays: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    """Of arrays of any float type."""
    return {name: np.array(a, np.float64) for name, a in arrays.items()}


def rows(x: Array) -> Array:
    """(…, K) as a matrix (N, K)."""
    return x.reshape(-1, x.shape[-1])
