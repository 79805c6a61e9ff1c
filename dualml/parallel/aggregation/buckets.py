"""Gradient buckets: which tensors are sent together, one message each or in flat buckets of a
chosen size."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

#: As in DistributedDataParallel (Li et al. 2020, "PyTorch Distributed", VLDB 13(12), section 4.2).
BUCKET_BYTES = 25 * 2**20


def bucket_layout(
    shapes: Mapping[str, Sequence[int]], limit: int = BUCKET_BYTES, width: int = 4
) -> list[list[str]]:
    """Return the names of the tensors of each bucket, in their order.

    A bucket is closed before it would exceed ``limit`` bytes; a larger tensor has one for itself.

    Args:
        shapes: name → shape.
        limit: maximum bytes of a bucket; 0 gives every tensor its own.
        width: bytes per element.

    >>> bucket_layout({"a": (10,), "b": (20,), "c": (30,)}, limit=120)
    [['a', 'b'], ['c']]
    """
    buckets: list[list[str]] = []
    filled = 0
    for name, shape in shapes.items():
        size = width * math.prod(shape)
        if not buckets or not limit or filled + size > limit:
            buckets.append([])
            filled = 0
        buckets[-1].append(name)
        filled += size
    return buckets
