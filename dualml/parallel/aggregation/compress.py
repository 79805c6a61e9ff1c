"""Gradient compression: half precision, or only the largest entries."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from dualml.algorithms.communicator.base import Communicator
from dualml.common.errors import TrialError
from dualml.parallel.aggregation.base import Strategy, Tensor


def sum_fp16(strategy: Strategy, comm: Communicator, x: Tensor) -> Tensor:
    """Return the strategy's sum of ``x`` rounded to float16, accumulated in float16, in the type of
    ``x``.

    It sends half the bytes of float32; entries below 3e-8 in magnitude vanish.

    Raises:
        TrialError: a sum that is not finite, such as one beyond 65504, the largest float16.
    """
    kind = comm.dtype(x)
    total = comm.cast(strategy.sum(comm, comm.cast(x, "float16")), kind)
    if not np.isfinite(comm.numpy(total)).all():
        raise TrialError(
            "compress = fp16: a gradient is beyond 65504, the largest float16; use no compression, "
            "or a smaller step size"
        )
    return total


class TopK:
    """Sends the largest entries of each rank's gradient and keeps the rest for later (error
    feedback).

    Each rank adds its residual to its new gradient, p = g + e, sends the ⌈fraction · d⌉ entries of
    p largest in magnitude (the first of equal ones) and keeps the rest, e = p − sent. Every rank
    sums what all ranks sent.

    Source: Stich, Cordonnier & Jaggi 2018, "Sparsified SGD with Memory", NeurIPS, algorithm 1.

    Attributes:
        residuals: bucket → e, a float array of the bucket's length.
    """

    def __init__(self, fraction: float) -> None:
        self.fraction = fraction
        self.residuals: dict[str, np.ndarray[Any, Any]] = {}

    def sum(self, comm: Communicator, x: Tensor, bucket: str) -> Tensor:
        """Return the sum over ranks of what each sends: the entries of ``x`` plus the bucket's
        residual that are largest in magnitude, 0 elsewhere. Keep the other entries as the new
        residual; ``x`` stays as it is."""
        own = comm.numpy(x)
        own += self.residuals.get(bucket, 0)
        k = max(1, math.ceil(self.fraction * len(own))) if len(own) else 0
        chosen = np.sort(np.argsort(-np.abs(own), kind="stable")[:k])
        values = own[chosen]
        self.residuals[bucket] = own
        self.residuals[bucket][chosen] = 0
        places = comm.all_gather(comm.tensor(chosen.astype(np.int32)))
        sent = comm.all_gather(comm.tensor(values))
        total = np.zeros_like(own)
        for at, value in zip(places, sent, strict=True):
            total[comm.numpy(at)] += comm.numpy(value)
        return comm.tensor(total)
