"""Batches that students' loaders gave, unpacked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from dualml.course.exercise import Array, Arrays, ExerciseCall

#: Maximum number of loops and of batches of an answer, far more than are requested.
MAX_LOOPS, MAX_BATCHES = 10_000, 100_000
Batches = list[Array]
#: (rank, seed, epoch).
LoopKey = tuple[int, int, int]


@dataclass(frozen=True)
class Resumption:
    """Loops of a loader whose state was taken after some batches of an epoch.

    Attributes:
        key, after: the loop, and the number of batches before the state was taken.
        kept: the rest that the first loader gave after its state was taken.
        rest, second_loop: first and second loop of a loader with this state.
        reset, following: loops of another one, after ``set_epoch`` of the same and the next epoch.
        characters: length of the state as JSON.
    """

    key: LoopKey
    after: int
    kept: Batches
    rest: Batches
    second_loop: Batches
    reset: Batches
    following: Batches
    characters: int


@dataclass(frozen=True)
class LoaderRun:
    """Loops over loaders of all ranks.

    Attributes:
        n, ranks, batch, drop_last: arguments of the loaders.
        first, again: first and second loop of an epoch.
        fresh: loop over a loader made for the epoch; ``later`` of the epoch that is set again.
        lengths: values of ``len``.
        unpaired: number of rows with another sample's label.
        touched: whether a global generator was changed.
    """

    n: int
    ranks: int
    batch: int
    drop_last: bool
    first: Mapping[LoopKey, Batches]
    again: Mapping[LoopKey, Batches]
    fresh: Mapping[LoopKey, Batches]
    later: Mapping[LoopKey, Batches]
    lengths: Mapping[LoopKey, int]
    unpaired: int
    touched: bool
    resumed: Sequence[Resumption] = field(default_factory=tuple)

    @property
    def share(self) -> int:
        """Number of samples that each rank should have: ⌈n/ranks⌉, or with ``drop_last`` what
        fills whole batches on all ranks."""
        if self.drop_last:
            return self.n // (self.ranks * self.batch) * self.batch
        return -(-self.n // self.ranks)

    @property
    def times(self) -> list[tuple[int, int]]:
        """All pairs of seed and epoch, in their order."""
        return list(dict.fromkeys((seed, epoch) for _, seed, epoch in self.first))

    @property
    def seeds(self) -> list[int]:
        """The seeds with which loaders were made, each once, in the order of ``first``."""
        return list(dict.fromkeys(seed for _, seed, _ in self.first))

    @property
    def epochs(self) -> list[int]:
        """All epochs, in their order."""
        return list(dict.fromkeys(epoch for _, _, epoch in self.first))

    def samples(self, key: LoopKey) -> Array:
        """Return the samples of the first loop of ``key``, concatenated."""
        return join(self.first[key])

    def rank_samples(self, seed: int, epoch: int) -> list[Array]:
        """Return the samples of every rank in an epoch."""
        return [self.samples((rank, seed, epoch)) for rank in range(self.ranks)]

    def title(self, key: LoopKey) -> str:
        """Return a loader as the student would write it."""
        rank, seed, epoch = key
        made = f"Loader(x, y, {self.batch}, {rank}, {self.ranks}, {seed}"
        return f"{made}, drop_last={self.drop_last}).set_epoch({epoch})"


def join(batches: Batches) -> Array:
    """Concatenate batches, possibly none."""
    whole: Array = np.concatenate([*batches, np.zeros(0, np.int64)]).astype(np.int64)
    return whole


def is_equal(a: Batches, b: Batches) -> bool:
    """Return whether two loops gave the same batches."""
    return len(a) == len(b) and all(np.array_equal(x, y) for x, y in zip(a, b, strict=True))


def unpack_loops(arrays: Arrays, name: str) -> list[Batches]:
    """Unpack loops that `dualml.course.drive_loader.pack_loops` has packed.

    Raises:
        ValueError: there are too many, or their numbers do not add up.
    """
    values, sizes, counts = (arrays[f"{name}/{key}"] for key in ("values", "sizes", "counts"))
    if values.ndim != 1 or sizes.ndim != 1 or counts.ndim != 1:
        raise ValueError("loops that are no lists")
    if len(counts) > MAX_LOOPS or len(sizes) > MAX_BATCHES:
        raise ValueError(f"{len(counts):,} loops of {len(sizes):,} batches")
    if np.any(sizes < 0) or np.any(counts < 0):
        raise ValueError("loops of negative sizes")
    if int(sizes.sum()) != len(values) or int(counts.sum()) != len(sizes):
        raise ValueError("loops of sizes that do not add up")
    batches = np.split(values.astype(np.int64), np.cumsum(sizes)[:-1]) if len(sizes) else []
    ends = np.cumsum(counts)
    return [batches[end - count : end] for end, count in zip(ends, counts, strict=True)]


def read_run(call: ExerciseCall, arrays: Arrays) -> LoaderRun:
    """Unpack the answer to a call.

    Raises:
        KeyError, ValueError, IndexError: the answer is not that of the driver.
    """
    h, epochs = call.options["hyper"], call.options["epochs"]
    keys = [(rank, seed, epoch) for rank, seed in call.options["asks"] for epoch in epochs]
    found = {name: unpack_loops(arrays, name) for name in ("first", "again", "fresh")}
    kinds: dict[str, dict[LoopKey, Batches]] = {name: {} for name in (*found, "later")}
    lengths: dict[LoopKey, int] = {}
    for number, key in enumerate(keys):
        if key in kinds["first"]:  # an epoch that is set again
            kinds["later"][key] = found["first"][number]
            continue
        for name, loops in found.items():
            kinds[name][key] = loops[number]
        lengths[key] = int(arrays["lengths"][number])
    return LoaderRun(
        h["n"],
        h["ranks"],
        h["batch"],
        h["drop_last"],
        **kinds,
        lengths=lengths,
        unpaired=int(arrays["unpaired"]),
        touched=bool(arrays["touched"]),
        resumed=read_resumptions(call, arrays),
    )


def read_resumptions(call: ExerciseCall, arrays: Arrays) -> list[Resumption]:
    """Unpack the loops of resumed loaders; an empty list if the call asks for none."""
    asked: Any = call.options["resumed"]
    if not asked:
        return []
    loops = {n: unpack_loops(arrays, n) for n in ("kept", "rest", "whole", "reset", "next")}
    keys = [(rank, seed, e, after) for rank, seed in call.options["asks"] for e, after in asked]
    return [
        Resumption(
            (rank, seed, e),
            after,
            kept=loops["kept"][i],
            rest=loops["rest"][i],
            second_loop=loops["whole"][i],
            reset=loops["reset"][i],
            following=loops["next"][i],
            characters=int(arrays["state"][i]),
        )
        for i, (rank, seed, e, after) in enumerate(keys)
    ]
