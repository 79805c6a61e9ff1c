"""Data parallel training whose gradients are already summed when they are computed: the framework's
own data parallel module, or buckets that are reduced during the backward pass."""

from __future__ import annotations

from typing import Any

from dualml.backend import Arrays
from dualml.backend.capability import ReducingBuckets, Tensor
from dualml.parallel.aggregation.all_reduce import AllReduce
from dualml.parallel.aggregation.base import Strategy
from dualml.parallel.aggregation.parallel import DataParallel
from dualml.parallel.aggregation.settings import Aggregation
from dualml.parallel.batch import Batch


class NativeDataParallel(DataParallel):
    """Data parallel training with `dualml.backend.capability.ReducingBuckets`.

    Waiting and transfers before the last gradient is computed count as computing, because they
    cannot be separated from outside the framework. A straggler that is slow at computing sleeps
    between its gradient and the sum, where part of its messages may have been sent already; the
    others then wait for it in the next update.
    """

    buckets: ReducingBuckets

    def summary(self) -> dict[str, Any]:
        """Return under ``how`` what sums the gradients (``gradients``), such as a class of the
        framework, and how rank 0's values are sent (``broadcast``)."""
        broadcast = str(self.comm.implementation_of("broadcast"))
        return {"how": {"gradients": f"native: {self.buckets.detail}", "broadcast": broadcast}}

    def make_strategy(self, settings: Aggregation) -> Strategy:
        """Return the all-reduce, whatever the settings: it stands for the framework's sum, with the
        same messages and bytes."""
        return AllReduce()

    def local_gradient(self, batch: Batch) -> Arrays:
        """Return an empty dict: once a gradient is visible it is already the sum over the ranks."""
        return {}

    def combine(self, gradients: list[Tensor], share: float) -> list[Tensor]:
        """Wait until the framework has summed the gradients over the ranks, and return the sums;
        ``share`` is ignored."""
        return self.buckets.wait_reduction(gradients)
