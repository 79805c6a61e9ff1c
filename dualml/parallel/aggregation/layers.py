"""Chunks of whole layers: a vector is split only at the boundaries of layers."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import accumulate


def layer_sizes(names: Sequence[str], shapes: Mapping[str, Sequence[int]]) -> list[int]:
    """Return the number of elements of each layer, in the order of ``names``: consecutive tensors
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
    """Return the start of each of n chunks of whole layers, and the end of the last one, in
    elements.

    Chunks are runs of consecutive layers; no other split has a smaller largest chunk. Each is
    filled as far as that size allows, so that the last ones may be empty.

    >>> cut_layers([156, 2416, 48120, 1210], 2)
    (0, 2572, 51902)
    """
    ends = [0, *accumulate(sizes)]
    runs = sorted({ends[b] - ends[a] for a in range(len(ends)) for b in range(a, len(ends))})
    fits = (bounds for most in runs if (bounds := _fill(ends, most, n)))
    return next(fits, (0,) * (n + 1))


def _fill(ends: Sequence[int], most: int, n: int) -> tuple[int, ...]:
    """Return the bounds of n chunks of whole layers, each filled as far as ``most`` elements allow;
    empty if they do not hold all layers. ``ends`` are the cumulative sizes of the layers, from
    0."""
    bounds = [0]
    for _ in range(n):
        bounds.append(max(end for end in ends if end - bounds[-1] <= most))
    return tuple(bounds) if bounds[-1] == ends[-1] else ()
