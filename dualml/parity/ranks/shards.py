"""Where a rank's array lies in the whole one, and how the arrays of all ranks are put together."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from dualml.experiment.store.jsonfile import Count, Record
from dualml.parity.models.gap import gap, is_bit_identical

Array = NDArray[Any]


class ShardPlace(Record):
    """The place of a rank's array in the whole one.

    Attributes:
        shape: shape of the whole array.
        offset: index of the shard's first element in each axis.
        terms: 0 if the shard has the numbers themselves. If they are terms of a sum, the number of
            ranks that add up to it; 1 if they are terms of a mean.
    """

    shape: Annotated[tuple[Count, ...], Field(strict=False)]
    offset: Annotated[tuple[Count, ...], Field(strict=False)]
    terms: Count = 0


@dataclass(frozen=True)
class RankArray:
    """The array of one rank, and its place in the whole array; ``place`` is None if it is the whole
    one."""

    rank: int
    array: Array
    place: ShardPlace | None = None


def assemble_shards(parts: Sequence[RankArray]) -> Array:
    """Return the whole array of which every rank has a shard, a term of a sum or mean, or a copy.

    Of several copies the first one in ``parts`` is taken; terms at the same place are added.

    Raises:
        ValueError: a shard does not fit, or elements are in no shard.

    Example:
        >>> left = ShardPlace(shape=(3,), offset=(0,))
        >>> right = ShardPlace(shape=(3,), offset=(2,))
        >>> a, b = np.array([1.0, 2.0]), np.array([3.0])
        >>> assemble_shards([RankArray(0, a, left), RankArray(1, b, right)])
        array([1., 2., 3.])
    """
    first = parts[0]
    if first.place is None:
        return first.array
    shape = first.place.shape
    whole = np.zeros(shape, first.array.dtype)
    covered = np.zeros(shape, bool)
    at: dict[tuple[int, ...], list[RankArray]] = {}
    for part in parts:
        place = part.place
        if place is None or place.shape != shape or len(place.offset) != len(shape):
            other = part.array.shape if place is None else place.shape
            raise ValueError(f"rank {part.rank} has it with shape {other}, others with {shape}")
        ends = find_ends(place.offset, part.array.shape)
        if any(end > length for end, length in zip(ends, shape, strict=True)):
            raise ValueError(f"the shard of rank {part.rank} ends at {tuple(ends)} in {shape}")
        if part.array.size:  # of an axis that is shorter than the number of ranks some have none
            at.setdefault(place.offset, []).append(part)
    for offset, found in at.items():
        value = found[0].array
        terms = found[0].place.terms if found[0].place is not None else 0
        if terms:  # several ranks may have the same term: count each once
            value = np.sum([one.array for one in found], axis=0) * (terms / len(found))
        region = tuple(map(slice, offset, find_ends(offset, value.shape)))
        whole[region], covered[region] = value, True
    if not covered.all():
        missing = int(covered.size - covered.sum())
        raise ValueError(f"{missing} of {math.prod(shape)} elements are in no rank's shard")
    return whole


def find_ends(offset: Sequence[int], shape: Sequence[int]) -> list[int]:
    """Return in each axis the index after the last element of a shard."""
    return [start + length for start, length in zip(offset, shape, strict=True)]


def cut_shard(whole: Array, part: RankArray) -> Array:
    """Return the elements of a whole array at the place of a rank's array, as a view; ``whole``
    itself if the rank has the whole array."""
    if part.place is None:
        return whole
    offset = part.place.offset
    return whole[tuple(map(slice, offset, find_ends(offset, part.array.shape)))]


def is_sharded(parts: Sequence[RankArray]) -> bool:
    """Return whether some rank's array has another shape than the whole array."""
    return any(p.place is not None and p.array.shape != p.place.shape for p in parts)


def find_other_copies(parts: Sequence[RankArray]) -> dict[int, float]:
    """Return rank → relative distance from the first array of ``parts``, for the ranks whose copy
    has other bits; empty if any part is a shard or a term."""
    if any(part.place is not None for part in parts):
        return {}
    first = parts[0].array
    return {
        part.rank: gap(first, part.array)
        for part in parts[1:]
        if not is_bit_identical(first, part.array)
    }


def join_batch(parts: Sequence[Array]) -> Array | None:
    """Return arrays joined along their first axis, the batch; None if their other axes differ, or
    if they are scalars."""
    first = parts[0]
    fit = all(p.ndim == first.ndim > 0 and p.shape[1:] == first.shape[1:] for p in parts)
    return np.concatenate(parts) if fit else None


def average(values: Sequence[Array], weights: Sequence[float]) -> Array:
    """Return the weighted mean of arrays of one shape in float64; weights need not add up to 1."""
    total = math.fsum(weights)
    scaled = (w / total * v.astype(np.float64) for v, w in zip(values, weights, strict=True))
    mean: Array = np.sum(list(scaled), axis=0)
    return mean
