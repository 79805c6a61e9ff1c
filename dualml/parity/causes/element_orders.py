"""Enumerate other element orders and other indices for a tensor."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import permutations
from math import isqrt

from dualml.parity.causes.mutation import Mutation, Shape, Transform
from dualml.parity.models.operations import Operation


def element_orders(shape: Shape) -> Iterator[Transform]:
    """Yield transforms that reorder the elements of an array of this shape and keep the shape.

    Each is a tuple of a name and its numbers: flips, shifts by one, swapped chunks and
    interleavings of one axis, and permutations of all axes for two to five of them.
    """
    for axis, length in enumerate(shape):
        if length < 2:
            continue
        yield ("flip", axis)
        yield ("roll", axis, 1)
        yield ("roll", axis, -1)
        for count in (2, 3, 4):
            if length % count == 0 and length > count:
                yield from (
                    ("chunks", axis, *order)
                    for order in permutations(range(count))
                    if order != tuple(range(count))
                )
        divisors = [n for n in range(2, length // 2 + 1) if length % n == 0]
        yield from (("interleave", axis, n) for n in [*divisors[:4], *divisors[4:][-4:]])
        yield from (
            ("regroup", axis, *pair)
            for n in (2, 3, 4)
            for m in range(2, length // n)
            if length % (n * m) == 0 and length > n * m
            for pair in ((m, n), (n, m))
        )
        root = isqrt(length)
        if root * root == length and root > 5:
            yield ("interleave", axis, root)
    if len(shape) > 1 and len(shape) <= 5:
        for order in permutations(range(len(shape))):
            if order != tuple(range(len(shape))):
                yield ("rearrange", *order)
                yield ("recut", *order)


def index_mutations(one: Operation) -> Iterator[Mutation]:
    """Yield mutations of an indexing call: neighbouring integer indices, 0 and −1, shifted slices,
    and other positions of added axes (None)."""
    index = one.attributes.get("argument 1")
    if isinstance(index, list) and None in index and set(index) <= {None, "::", "Ellipsis"}:
        for order in dict.fromkeys(permutations(index)):
            if list(order) != index:
                yield Mutation(
                    "layout", "indices", (one.number,), one.name, "", order, tuple(index)
                )
    for at, part in enumerate(index if isinstance(index, list) else [index]):
        if isinstance(part, int) and not isinstance(part, bool):
            for value in dict.fromkeys((-1, 0, part + 1, part - 1)):
                if value != part:
                    yield Mutation("operand", "index", (one.number,), one.name, at, value, part)
        elif isinstance(part, str) and part.count(":") == 2:
            start, stop, step = (
                int(n) if n.lstrip("-").isdigit() else None for n in part.split(":")
            )
            ways = [
                ((start or 0) + 1, stop, step),
                (start, (stop or 0) - 1, step),
                (None, stop, step),
                (start, None, step),
                ((start or 0) + 1, stop and stop + 1, step),
                ((start or 0) - 1, (stop or 0) - 1, step),
                *([(start, stop + 1, step)] if stop else []),
            ]
            for way in ways:
                yield Mutation("layout", "index", (one.number,), one.name, at, way, part)
