"""Lists of sample numbers that a student's code gave: read, and what has to hold of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import Any

import numpy as np

from dualml.course.exercise import Array, Arrays

#: Lists of one answer, far more than are asked for.
MOST = 10_000
#: (rank, seed, epoch).
Ask = tuple[int, int, int]


@dataclass(frozen=True)
class Seen:
    """A property that does not hold: an expression of the student's functions, what it is and what
    it should be."""

    what: str
    value: Any
    expected: Any


@dataclass(frozen=True)
class Lists:
    """What a function or a sampler gave.

    Attributes:
        first, again: (rank, seed, epoch) → the list, as asked for at first and a second time.
        loaded, fresh, lengths: of a sampler: through the loader, from another one that is made for
            the epoch, and what ``len`` says.
        touched: whether NumPy's global generator is another one than before.
        title: how a list is called.
    """

    n: int
    ranks: int
    first: Mapping[Ask, Array]
    again: Mapping[Ask, Array]
    kinds: Sequence[str]
    dims: Sequence[int]
    touched: bool
    title: Callable[[Ask], str]
    loaded: Mapping[Ask, Array] = field(default_factory=dict)
    fresh: Mapping[Ask, Array] = field(default_factory=dict)
    lengths: Mapping[Ask, int] = field(default_factory=dict)

    @property
    def seeds(self) -> list[int]:
        return list(dict.fromkeys(seed for _, seed, _ in self.first))

    @property
    def epochs(self) -> list[int]:
        return list(dict.fromkeys(epoch for _, _, epoch in self.first))

    @property
    def own(self) -> list[int]:
        """The ranks that were asked."""
        return list(dict.fromkeys(rank for rank, _, _ in self.first))

    def times(self) -> list[tuple[int, int]]:
        """Seeds with epochs."""
        return list(product(self.seeds, self.epochs))

    def of_ranks(self, seed: int, epoch: int) -> list[Array]:
        return [self.first[rank, seed, epoch] for rank in self.own]

    def of_epochs(self, rank: int, seed: int) -> list[Array]:
        return [self.first[rank, seed, epoch] for epoch in self.epochs]


def unpacked(arrays: Arrays, prefix: str = "") -> list[Array]:
    """The lists that `dualml.course.drive_lab3.packed` has packed, as integers.

    Raises:
        ValueError: so many that nobody asked for them, or sizes that do not add up.
    """
    values, sizes = arrays[f"{prefix}values"], arrays[f"{prefix}sizes"]
    if values.ndim != 1 or sizes.ndim != 1 or len(sizes) > MOST:
        raise ValueError(f"{sizes.size:,} lists")
    if np.any(sizes < 0) or int(sizes.sum()) != len(values):
        raise ValueError("lists of sizes that do not add up")
    with np.errstate(invalid="ignore"):  # NaN as a sample: no integer, which is told
        return np.split(np.floor(values).astype(np.int64), np.cumsum(sizes)[:-1])


def kinds(arrays: Arrays, prefix: str = "") -> tuple[list[str], list[int]]:
    """Letters of the lists' types, and how many dimensions they have."""
    return [chr(k) for k in arrays[f"{prefix}kinds"]], [int(d) for d in arrays[f"{prefix}dims"]]


def same(a: Array, b: Array) -> bool:
    """Whether one list is the beginning of the other; ranks' sizes may differ by one."""
    shorter = min(len(a), len(b))
    return shorter > 0 and abs(len(a) - len(b)) < 2 and bool((a[:shorter] == b[:shorter]).all())


def alike(a: Array, b: Array) -> bool:
    """Whether they have the same samples, in whatever order."""
    return np.array_equal(np.sort(a), np.sort(b))
