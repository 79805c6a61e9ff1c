"""Communication volume of one aggregation, over all ranks, in closed form."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from dualml.parallel.aggregation import ASYNCHRONOUS, NATIVE, strategy
from dualml.parallel.aggregation.all_reduce import AllReduce
from dualml.parallel.aggregation.buckets import bucket_layout
from dualml.parallel.aggregation.settings import Aggregation

HALF = 2  # bytes of a float16
PLACE = 4  # bytes of the index of an entry that `topk` sends


def aggregation_volume(
    settings: Aggregation, shapes: Mapping[str, Sequence[int]], n: int, width: int
) -> float:
    """Return the bytes that n ranks together send for one aggregation of a model's gradients or
    parameters.

    A native collective counts with its reference algorithm. No algorithm sends less than the ring's
    2 (n − 1) S for a sum on every rank, or n (n − 1) S for every rank's vector on every rank: a
    framework may send more, never fewer.

    Args:
        shapes: parameter → shape.
        n: number of ranks.
        width: bytes per element.

    Source: Patarasuk & Yuan 2009, theorem 1.
    """
    total = sum(map(math.prod, shapes.values()))
    if settings.strategy == ASYNCHRONOUS:  # a gradient to the server, parameters back
        return 2.0 * (n - 1) * total * width
    if settings.compress == "topk":
        buckets = bucket_layout(shapes, settings.bucket_bytes)
        lengths = [sum(math.prod(shapes[name]) for name in names) for names in buckets]
        entries = sum(max(1, math.ceil(settings.fraction * length)) for length in lengths)
        return float(n * (n - 1) * entries * (PLACE + width))
    native = settings.strategy == NATIVE or settings.overlap
    schedule = (AllReduce() if native else strategy(settings.strategy)).schedule(n)
    spans = (schedule.span(message, total) for step in schedule.steps for message in step)
    each = HALF if settings.compress == "fp16" else width
    return float(each * sum(stop - start for start, stop in spans))
