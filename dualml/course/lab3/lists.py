"""Lists of sample numbers that a student's code returned, and comparisons of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import Any

import numpy as np

from dualml.course.exercise import Array, Arrays

#: Maximum number of lists in an answer, far more than are requested.
MAX_LISTS = 10_000
#: (rank, seed, epoch).
Ask = tuple[int, int, int]


@dataclass(frozen=True)
class Violation:
    """A violated property: an expression of the student's functions, its value, and the expected
    value."""

    what: str
    value: Any
    expected: Any


@dataclass(frozen=True)
class SampleLists:
    """Lists that a function or a sampler returned.

    Attributes:
        first, again: (rank, seed, epoch) → the list of the first and of the second request.
        kinds, dims: letter of the dtype and number of dimensions of each returned list, in the
            order of the requests.
        loaded, fresh, lengths: for a sampler: the lists through the loader, those of a sampler made
            for the epoch, and the values of ``len``.
        apart: for a sampler: the lists of one on which another epoch was set after this one's.
        unwritten: whether a sampler has no loop yet, so that only ``lengths`` are there.
        touched: whether a global random generator (NumPy's, Python's, for samplers also the
            framework's) was changed.
        title: function that returns the call of a list as text.
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
    apart: Mapping[Ask, Array] = field(default_factory=dict)
    unwritten: bool = False

    @property
    def seeds(self) -> list[int]:
        """Seeds that were requested."""
        return list(dict.fromkeys(seed for _, seed, _ in self.first))

    @property
    def epochs(self) -> list[int]:
        """Epochs that were requested."""
        return list(dict.fromkeys(epoch for _, _, epoch in self.first))

    @property
    def asked_ranks(self) -> list[int]:
        """Ranks that were requested."""
        return list(dict.fromkeys(rank for rank, _, _ in self.first))

    def seed_epoch_pairs(self) -> list[tuple[int, int]]:
        """Return all pairs of seed and epoch."""
        return list(product(self.seeds, self.epochs))

    def rank_lists(self, seed: int, epoch: int) -> list[Array]:
        """Return the lists of all requested ranks in one epoch, of the first request."""
        return [self.first[rank, seed, epoch] for rank in self.asked_ranks]

    def epoch_lists(self, rank: int, seed: int) -> list[Array]:
        """Return a rank's lists of all requested epochs, of the first request."""
        return [self.first[rank, seed, epoch] for epoch in self.epochs]


def unpack_lists(arrays: Arrays, prefix: str = "") -> list[Array]:
    """Unpack the lists that `dualml.course.drive_lab3.pack_lists` has packed, as integers, other
    numbers rounded down.

    Raises:
        ValueError: there are too many lists, or their sizes do not add up.
    """
    values, sizes = arrays[f"{prefix}values"], arrays[f"{prefix}sizes"]
    if values.ndim != 1 or sizes.ndim != 1 or len(sizes) > MAX_LISTS:
        raise ValueError(f"{sizes.size:,} lists")
    if np.any(sizes < 0) or int(sizes.sum()) != len(values):
        raise ValueError("lists of sizes that do not add up")
    with np.errstate(invalid="ignore"):  # NaN as a sample: no integer, which is told
        return np.split(np.floor(values).astype(np.int64), np.cumsum(sizes)[:-1])


def list_types(arrays: Arrays, prefix: str = "") -> tuple[list[str], list[int]]:
    """Return the letter of each list's dtype, and its number of dimensions."""
    return [chr(k) for k in arrays[f"{prefix}kinds"]], [int(d) for d in arrays[f"{prefix}dims"]]


def is_same_list(a: Array, b: Array) -> bool:
    """Return whether one list, not empty, is the beginning of the other and at most one sample
    shorter; ranks' sizes may differ by one."""
    shorter = min(len(a), len(b))
    return shorter > 0 and abs(len(a) - len(b)) < 2 and bool((a[:shorter] == b[:shorter]).all())


def has_same_samples(a: Array, b: Array) -> bool:
    """Return whether two lists have the same samples, each equally often, in any order."""
    return np.array_equal(np.sort(a), np.sort(b))
