"""Random numbers that both sides of a comparison draw from one source."""

from __future__ import annotations

from collections import Counter

import numpy as np
from numpy.typing import NDArray


class Chance:
    """Uniform numbers in [0, 1): the k-th draw of n numbers in a step is the same on both sides,
    in the order of the elements.

    Each size has draws of its own, so that a call that only one side makes (or makes with
    probability zero) does not change the numbers of others. Every step draws the same numbers.
    """

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.drawn: Counter[int] = Counter()

    def uniform(self, shape: tuple[int, ...]) -> NDArray[np.float32]:
        size = int(np.prod(shape, dtype=np.int64))
        self.drawn[size] += 1
        generator = np.random.default_rng([self.seed, size, self.drawn[size]])
        return generator.random(size, np.float32).reshape(shape)

    def kept(self, shape: tuple[int, ...], p: float) -> NDArray[np.float32]:
        """One where an element stays, zero with probability ``p``."""
        return (self.uniform(shape) >= p).astype(np.float32)
