"""Reproducible input arrays for probes, identical for both frameworks."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

#: A grey image of shape (16, 16) with every byte value; mean and deviation of MNIST.
PIXELS = np.arange(256, dtype=np.uint8).reshape(16, 16)
MEAN, DEVIATION = 0.1307, 0.3081


def normal(*shape: int, seed: int = 0) -> NDArray[np.float32]:
    """Return standard normal float32 numbers of the given shape, always the same for a seed and
    shape."""
    return np.random.default_rng([seed, *shape]).standard_normal(shape).astype(np.float32)


def class_indices(count: int, *shape: int, seed: int = 0) -> NDArray[np.int64]:
    """Return class indices from 0 to ``count`` − 1 (int64) of the given shape."""
    return np.random.default_rng([seed, count, *shape]).integers(0, count, shape)
