"""A source of random numbers that both sides of a comparison share."""

from __future__ import annotations

from collections import Counter

import numpy as np
from numpy.typing import NDArray


class SharedRng:
    """Random numbers that are the same on both sides: they depend on the seed, the number n of
    elements, and on how many draws of n numbers were made since this object was made.

    Each size has its own stream, so a call that only one side makes (or makes with probability
    zero) does not change the numbers of others. Each step makes a new object, so that every step
    draws the same numbers.
    """

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.draw_counts: Counter[int] = Counter()

    def uniform(self, shape: tuple[int, ...]) -> NDArray[np.float32]:
        """Return uniform float32 numbers in [0, 1) of the given shape; each further call with as
        many elements gives others."""
        size = int(np.prod(shape, dtype=np.int64))
        self.draw_counts[size] += 1
        generator = np.random.default_rng([self.seed, size, self.draw_counts[size]])
        return generator.random(size, np.float32).reshape(shape)

    def keep_mask(self, shape: tuple[int, ...], p: float) -> NDArray[np.float32]:
        """Return a float32 Dropout mask, drawn by `uniform`: 1 where an element is kept, 0 with
        probability ``p``."""
        return (self.uniform(shape) >= p).astype(np.float32)
