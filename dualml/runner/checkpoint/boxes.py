"""Boxes, which are slices of tensors given by an offset and a shape along every axis."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, order=True)
class IndexBox:
    """Consecutive indices along every axis; for a scalar both tuples are empty.

    Example:
        >>> str(IndexBox((0, 2), (4, 6)))
        '[0:4, 2:8]'
    """

    offset: tuple[int, ...]
    shape: tuple[int, ...]

    @classmethod
    def full(cls, shape: Sequence[int]) -> IndexBox:
        """Return the box that covers a whole tensor of this shape."""
        return cls((0,) * len(shape), tuple(shape))

    @property
    def volume(self) -> int:
        """Number of elements in the box."""
        return math.prod(self.shape)

    @property
    def end(self) -> tuple[int, ...]:
        """Exclusive end index along every axis."""
        return tuple(o + n for o, n in zip(self.offset, self.shape, strict=True))

    @property
    def slices(self) -> tuple[slice, ...]:
        """Slices that cut this box out of the whole tensor."""
        return self.slices_from((0,) * len(self.offset))

    def slices_from(self, origin: Sequence[int]) -> tuple[slice, ...]:
        """Return the slices that cut this box out of an array whose first element is the tensor's
        element at ``origin``."""
        return tuple(
            slice(o - start, o - start + n)
            for o, n, start in zip(self.offset, self.shape, origin, strict=True)
        )

    def fits(self, shape: Sequence[int]) -> bool:
        """Return whether the box lies inside a tensor of this shape."""
        return (
            len(shape) == len(self.offset) == len(self.shape)
            and min((*self.offset, *self.shape), default=0) >= 0
            and all(end <= n for end, n in zip(self.end, shape, strict=True))
        )

    def narrow(self, axis: int, start: int, end: int) -> IndexBox:
        """Return the box with indices ``start`` to ``end`` (exclusive, counted in the whole tensor)
        along one axis, and unchanged along the others."""
        offset, shape = list(self.offset), list(self.shape)
        offset[axis], shape[axis] = start, end - start
        return IndexBox(tuple(offset), tuple(shape))

    def intersect(self, other: IndexBox) -> IndexBox | None:
        """Return the intersection with another box, or None if it has no elements; that of two
        scalars is their box."""
        low = tuple(map(max, self.offset, other.offset))
        high = tuple(map(min, self.end, other.end))
        if any(a >= b for a, b in zip(low, high, strict=True)):
            return None
        return IndexBox(low, tuple(b - a for a, b in zip(low, high, strict=True)))

    def subtract(self, other: IndexBox) -> Iterator[IndexBox]:
        """Yield this box minus ``other`` as disjoint boxes, at most two per axis."""
        if (common := self.intersect(other)) is None:
            yield self
            return
        box = self
        for axis, (low, high) in enumerate(zip(common.offset, common.end, strict=True)):
            for a, b in ((box.offset[axis], low), (high, box.end[axis])):
                if a < b:
                    yield box.narrow(axis, a, b)
            box = box.narrow(axis, low, high)

    def split_runs(self, most: int) -> Iterator[IndexBox]:
        """Yield the box in pieces of at most ``most`` (from 1) elements; the pieces, one after the
        other, hold the box's elements in C order."""
        if self.volume <= most:
            yield self
            return
        axis = next(axis for axis, n in enumerate(self.shape) if n > 1)
        inner = self.volume // self.shape[axis]
        rows = max(1, most // inner)
        for start in range(self.offset[axis], self.end[axis], rows):
            end = min(start + rows, self.end[axis])
            yield from self.narrow(axis, start, end).split_runs(most)

    def __str__(self) -> str:
        ranges = zip(self.offset, self.end, strict=True)
        return f"[{', '.join(f'{a}:{b}' for a, b in ranges)}]"


def uncovered_boxes(
    shape: Sequence[int], boxes: Sequence[IndexBox], *, disjoint: bool = False
) -> list[IndexBox]:
    """Return the parts of a tensor that are in none of the boxes, as disjoint boxes; an empty list
    if they cover it.

    Args:
        shape: of the tensor.
        boxes: inside the tensor.
        disjoint: whether the boxes are known not to overlap.
    """
    whole = sum(box.volume for box in boxes) == math.prod(shape)
    if whole and (disjoint or find_overlap(boxes) is None):
        return []
    left = [IndexBox.full(shape)] if math.prod(shape) else []
    for box in boxes:
        left = [rest for piece in left for rest in piece.subtract(box)]
    return left


def find_overlap(boxes: Sequence[IndexBox]) -> tuple[int, int] | None:
    """Return the indices of two boxes that share elements, the smaller one first, or None if there
    are none; boxes without elements share none.

    Boxes are swept along the axis in which most of them differ, so that for the boxes of a mesh the
    time does not grow with the square of their number.
    """
    there = [number for number, box in enumerate(boxes) if box.volume]
    if len(there) < 2 or not boxes[0].shape:
        return (there[0], there[1]) if len(there) > 1 else None
    starts = np.array([boxes[number].offset for number in there])
    axis = int(np.argmax([len(np.unique(column)) for column in starts.T]))
    active: list[int] = []
    for place in np.argsort(starts[:, axis], kind="stable"):
        number = there[int(place)]
        box = boxes[number]
        active = [other for other in active if boxes[other].end[axis] > box.offset[axis]]
        for other in active:
            if box.intersect(boxes[other]) is not None:
                return min(number, other), max(number, other)
        active.append(number)
    return None


def range_boxes(shape: Sequence[int], begin: int, end: int) -> list[IndexBox]:
    """Return the elements ``begin`` … ``end`` − 1 of the flattened tensor as boxes, in that order:
    what a rank holds whose shard is a range of a flat buffer. There are at most 2·d − 1 boxes for d
    axes.

    Example:
        >>> [str(box) for box in range_boxes((3, 4), 2, 12)]
        ['[0:1, 2:4]', '[1:3, 0:4]']
    """
    if begin >= end:
        return []
    if not shape:
        return [IndexBox((), ())]
    inner = math.prod(shape[1:])
    (first, head), (last, tail) = divmod(begin, inner), divmod(end, inner)

    def row(number: int, a: int, b: int) -> list[IndexBox]:
        return [
            IndexBox((number, *box.offset), (1, *box.shape)) for box in range_boxes(shape[1:], a, b)
        ]

    if first == last:
        return row(first, head, tail)
    boxes = row(first, head, inner) if head else []
    whole = first + bool(head)
    if whole < last:
        boxes.append(IndexBox.full(shape).narrow(0, whole, last))
    return boxes + row(last, 0, tail)
