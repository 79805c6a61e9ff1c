"""Buckets that are sent from gradient hooks while the backward pass continues."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any

import torch

from dualml.backend import chunks
from dualml.communicator import Communicator
from dualml_torch.aggregation import Array, TorchPieces
from dualml_torch.training import TorchTraining


class TorchOverlap(TorchPieces):
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
        self.missing: list[int] = []  # bucket → missing gradients; empty: hooks do nothing
        self.due = 0  # number of buckets not sent yet, the first ones
        self.under_way: deque[tuple[int, Any]] = deque()
        for bucket, names in enumerate(layout):
            for name in names:
                training.parameters[name].register_post_accumulate_grad_hook(
                    lambda _, bucket=bucket: self._arrived(bucket)
                )

    def gradient(
        self, batch: Array, factor: float
    ) -> tuple[list[tuple[torch.Tensor, float]] | None, list[torch.Tensor]]:
        self.settle(self.buckets)  # unfinished work still reads and writes the buckets
        # A hook is called once per chunk.
        times = len(chunks(batch, self.training.recipe.chunk))
        self.missing = [times * len(names) for names in self.layout] if times else []
        self.due = len(self.layout)
        try:
            losses = self._backward(batch, factor)
        finally:
            self.missing = []
        while self.due:  # no samples, or a parameter without a gradient
            self._send()
        return losses, list(self.buckets)

    def settle(self, gradients: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        summed = list(gradients)
        while self.under_way:
            bucket, pending = self.under_way.popleft()
            summed[bucket] = pending.wait()
        return summed

    def _arrived(self, bucket: int) -> None:
        """Count a gradient of a bucket as ready; send the buckets that are complete, in order."""
        if self.missing:
            self.missing[bucket] -= 1
            while self.due and not self.missing[self.due - 1]:
                self._send()

    def _send(self) -> None:
        """Send the last bucket that has not been sent."""
        self.due -= 1
        self._fill(self.due)
        pending = self.comm.all_reduce(self.buckets[self.due], inplace=True, wait=False)
        self.under_way.append((self.due, pending))
