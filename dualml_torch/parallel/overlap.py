"""Buckets that are sent from gradient hooks while the backward pass continues."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any

import torch

from dualml.algorithms.communicator import Communicator
from dualml.backend import split_into_chunks
from dualml_torch.algorithms.training import TorchTraining
from dualml_torch.parallel.aggregation import Array, TorchGradientBuckets


class TorchReducingBuckets(TorchGradientBuckets):
    """PyTorch implementation of `dualml.backend.capability.ReducingBuckets` by gradient hooks.

    A bucket is sent as soon as its gradients are final, in the last chunk of the batch. The last
    bucket, whose gradients are ready first, is sent first, and buckets never overtake one another:
    ranks match messages by order, which must not depend on the computation of a rank.

    Source: Li et al. 2020, "PyTorch Distributed", VLDB 13(12), sections 3.2.3 and 4.2.
    """

    detail = "buckets sent from gradient hooks, by dist.all_reduce with async_op"

    def __init__(
        self, training: TorchTraining, layout: Sequence[Sequence[str]], comm: Communicator
    ) -> None:
        super().__init__(training, layout)
        self.comm = comm
        self.pending_gradients: list[
            int
        ] = []  # bucket → missing gradients; empty: hooks do nothing
        self.unsent = 0  # number of buckets not sent yet, the first ones
        self.in_flight: deque[tuple[int, Any]] = deque()
        for bucket, names in enumerate(layout):
            for name in names:
                training.parameters[name].register_post_accumulate_grad_hook(
                    lambda _, bucket=bucket: self._on_gradient_ready(bucket)
                )

    def gradient(
        self, batch: Array, factor: float
    ) -> tuple[list[tuple[torch.Tensor, float]] | None, list[torch.Tensor]]:
        """Compute ``factor`` times the gradient of ``batch``, times the loss scale, which `update`
        divides out again, and send each bucket once it is complete; return pairs of a chunk's
        detached mean loss and share, None for an empty batch, and the buckets, which are sums only
        after `wait_reduction`. All ranks call it."""
        self.wait_reduction(self.buckets)  # unfinished work still reads and writes the buckets
        # A hook is called once per chunk.
        times = len(split_into_chunks(batch, self.training.recipe.chunk))
        self.pending_gradients = [times * len(names) for names in self.layout] if times else []
        self.unsent = len(self.layout)
        try:
            losses = self._backward(batch, factor)
        finally:
            self.pending_gradients = []
        while self.unsent:  # no samples, or a parameter without a gradient
            self._send_next()
        return losses, list(self.buckets)

    def wait_reduction(self, gradients: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Wait for the buckets that are in flight; return ``gradients``, one per bucket, with their
        sums over the ranks in place of those."""
        summed = list(gradients)
        while self.in_flight:
            bucket, pending = self.in_flight.popleft()
            summed[bucket] = pending.wait()
        return summed

    def _on_gradient_ready(self, bucket: int) -> None:
        """Count a gradient of a bucket as ready, once per chunk; send the buckets that are
        complete, the last one first. Outside of `gradient` do nothing."""
        if self.pending_gradients:
            self.pending_gradients[bucket] -= 1
            while self.unsent and not self.pending_gradients[self.unsent - 1]:
                self._send_next()

    def _send_next(self) -> None:
        """Fill the last bucket that has not been sent and start its all-reduce."""
        self.unsent -= 1
        self._fill_bucket(self.unsent)
        pending = self.comm.all_reduce(self.buckets[self.unsent], inplace=True, wait=False)
        self.in_flight.append((self.unsent, pending))
