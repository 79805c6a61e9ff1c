"""PyTorch's own data parallel training: one process per device, or one for all devices."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from dualml.algorithms.communicator import Communicator
from dualml.backend import split_into_chunks
from dualml.common.errors import Unsupported
from dualml_torch.algorithms.training import TorchTraining
from dualml_torch.parallel.aggregation import Array, TorchGradientBuckets


class TorchDataParallel(TorchGradientBuckets):
    """`DistributedDataParallel` around the network; see
    `dualml.backend.capability.ReducingBuckets`.

    Gradients are used where it leaves them: every parameter is a bucket here, whatever buckets it
    sends. All ranks make it at the same time, because it first compares their models.

    Raises:
        Unsupported: a single rank.
    """

    detail = "torch.nn.parallel.DistributedDataParallel"

    def __init__(self, training: TorchTraining, comm: Communicator) -> None:
        if comm.group is None:
            raise Unsupported(f"{self.detail} needs a process group; this rank is alone")
        super().__init__(training, [[name] for name in training.parameters])
        self.size = comm.size
        self.parallel = DistributedDataParallel(
            training.network,
            process_group=comm.group,
            broadcast_buffers=False,
            gradient_as_bucket_view=True,
        )

    def gradient(
        self, batch: Array, factor: float
    ) -> tuple[list[tuple[torch.Tensor, float]] | None, list[torch.Tensor]]:
        """Compute ``factor`` times the gradient of ``batch``, times the loss scale, which `update`
        divides out again; DDP sums it over the ranks in the last chunk. Return pairs of a chunk's
        detached mean loss and share on this rank, None for an empty batch, which contributes zeros,
        and each ``grad`` as a flat view. All ranks call it."""
        own = self.training.parameters.values()
        self.training.zero_grad()
        losses = None
        if len(batch):
            losses, parts = [], split_into_chunks(batch, self.training.recipe.chunk)
            for number, (part, share) in enumerate(parts, start=1):
                last = number == len(parts)
                with nullcontext() if last else self.parallel.no_sync():
                    losses.append((self._backward(part, share * factor), share))
        else:  # take part in the all-reduce: the gradient of an empty sum is zero
            inputs, _ = self.training.batch_tensors(np.zeros(0, np.int64))
            self.training.network.eval()  # no statistics of an empty batch
            self.parallel(*inputs).sum().backward()
            self.training.network.train()
        self.buckets = [p.grad.view(-1) for p in own]
        return losses, list(self.buckets)

    def _backward(self, part: Array, factor: float) -> torch.Tensor:
        """Add ``factor`` times the gradient of this part's mean loss, times the loss scale, to the
        sum over the ranks; return the part's own mean loss, detached."""
        inputs, labels = self.training.batch_tensors(part)
        loss = self.training.loss(self.parallel(*inputs), labels)
        factor = factor * self.training.loss_scale * self.size  # DDP averages over the ranks
        (loss * factor).backward()
        return loss.detach()

    def bucket_bytes(self) -> int:
        """Return 0: the gradients are views of DDP's buckets, which count as gradients."""
        return 0

    def wait_reduction(self, gradients: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Return the gradients as a list without waiting: they are summed when `gradient`
        returns."""
        return list(gradients)


class Replicas(nn.DataParallel):
    """A network that splits every batch over the GPUs of one process; other attributes are the
    network's."""

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(super().__getattr__("module"), name)


def make_replicas(network: nn.Module, device: torch.device) -> Replicas:
    """Wrap a network in `Replicas`.

    Raises:
        Unsupported: fewer than two GPUs, or a model on another device.
    """
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if count < 2:
        raise Unsupported(f"torch.nn.DataParallel needs two GPUs; there are {count}")
    if device.type != "cuda":
        raise Unsupported(f"torch.nn.DataParallel needs the model on a GPU; it is on the {device}")
    return Replicas(network)
