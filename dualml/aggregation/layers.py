"""Chunks of whole layers: a vector is cut where one layer ends and the next begins."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import accumulate


def layer_sizes(names: Sequence[str], shapes: Mapping[str, Sequence[int]]) -> list[int]:
    """Return the elements of each layer, in the order of ``names``: tensors next to one another
    whose names agree up to the last dot (``conv1.weight``, ``conv1.bias``) are one layer.

    >>> layer_sizes(["a.weight", "a.bias", "b"], {"a.weight": (2, 3), "a.bias": (2,), "b": (5,)})
    [8, 5]
    """
    sizes: list[int] = []
    last = None
    for name in names:
        layer = name.rpartition(".")[0] or name
        if layer != last:
            sizes.append(0)
            last = layer
        sizes[-1] += math.prod(shapes[name])
    return sizes


def cut_layers(sizes: Sequence[int], n: int) -> tuple[int, ...]:
    """Return where n chunks of whole layers begin, and where the last one ends, in elements.

    Chunks are runs of layers, in their order; no other cut has a smaller largest chunk. With fewer
    layers than chunks the last ones are empty.

    >>> cut_layers([156, 2416, 48120, 1210], 2)
    (0, 2572, 51902)
    """
    ends = [0, *accumulate(sizes)]
    runs = sorted({ends[b] - ends[a] for a in range(len(ends)) for b in range(a, len(ends))})
    fits = (bounds for most in runs if (bounds := _fill(ends, most, n)))
    return next(fits, (0,) * (n + 1))


def _fill(ends: Sequence[int], most: int, n: int) -> tuple[int, ...]:
    """Bounds of chunks of at most ``most`` elements, each as full as it gets; empty where n of them
    do not hold all layers."""
    bounds = [0]
    for _ in range(n):
        bounds.append(max(end for end in ends if end - bounds[-1] <= most))
    return tuple(bounds) if bounds[-1] == ends[-1] else ()
