"""Numbers for the probes: the same for both frameworks, whenever they are asked for."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

#: A grey image of every byte, with the mean and the deviation of MNIST.
PIXELS = np.arange(256, dtype=np.uint8).reshape(16, 16)
MEAN, DEVIATION = 0.1307, 0.3081


def normal(*shape: int, seed: int = 0) -> NDArray[np.float32]:
    """Standard normal float32 numbers of a shape."""
    return np.random.default_rng([seed, *shape]).standard_normal(shape).astype(np.float32)


def classes(count: int, *shape: int, seed: int = 0) -> NDArray[np.int64]:
    """Class numbers 0 … ``count`` − 1 of a shape."""
    return np.random.default_rng([seed, count, *shape]).integers(0, count, shape)
