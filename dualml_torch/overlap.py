"""Buckets sent from gradient hooks, while the backward pass goes on with the layers before them."""

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
    """See `dualml.backend.ability.Summing`.

    A bucket is sent as soon as its gradients are final: in the last chunk of the batch. The last
    bucket, whose gradients are there first, is the first to be sent, and none before those behind
    it: ranks match their messages by the order, which must not depend on who has what to compute.

    Source: Li et al. 2020, "PyTorch Distributed", VLDB 13(12), sections 3.2.3 and 4.2.
    """

    detail = "buckets sent from gradient hooks, by dist.all_reduce with async_op"

    def __init__(
        self, training: TorchTraining, layout: Sequence[Sequence[str]], comm: Communicator
    ) -> None:
        super().__init__(training, layout)
        self.comm = comm
        self.missing: list[int] = []  # bucket → gradients still to come; empty: nobody listens
        self.due = 0  # buckets not sent yet: those before this number
        self.under_way: deque[tuple[int, Any]] = deque()
        for bucket, names in enumerate(layout):
            for name in names:
                training.parameters[name].register_post_accumulate_grad_hook(
                    lambda _, bucket=bucket: self._arrived(bucket)
                )

    def gradient(
        self, batch: Array, factor: float
    ) -> tuple[list[tuple[torch.Tensor, float]] | None, list[torch.Tensor]]:
        self.settle(self.buckets)  # what nobody asked for still reads and writes the buckets
        # A hook comes once in every chunk.
        times = len(chunks(batch, self.training.recipe.chunk))
        self.missing = [times * len(names) for names in self.layout] if times else []
        self.due = len(self.layout)
        try:
            losses = self._backward(batch, factor)
        finally:
            self.missing = []
        while self.due:  # of a rank without samples, or without a gradient for some parameter
            self._send()
        return losses, list(self.buckets)

    def settle(self, gradients: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        summed = list(gradients)
        while self.under_way:
            bucket, pending = self.under_way.popleft()
            summed[bucket] = pending.wait()
        return summed

    def _arrived(self, bucket: int) -> None:
        if self.missing:
            self.missing[bucket] -= 1
            while self.due and not self.missing[self.due - 1]:
                self._send()

    def _send(self) -> None:
        self.due -= 1
        self._fill(self.due)
        pending = self.comm.all_reduce(self.buckets[self.due], inplace=True, wait=False)
        self.under_way.append((self.due, pending))
