"""One update in PyTorch taken apart: every gradient is a view into its bucket."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from numpy.typing import NDArray

from dualml.backend import chunks

if TYPE_CHECKING:
    from dualml_torch.training import TorchTraining

Array = NDArray[Any]


class TorchPieces:
    """See `dualml.aggregation.pieces.Pieces`."""

    def __init__(self, training: TorchTraining, layout: Sequence[Sequence[str]]) -> None:
        self.training, self.layout = training, layout
        own = training.parameters
        self.buckets = [
            torch.zeros(sum(own[n].numel() for n in names), device=training.device)
            for names in layout
        ]
        self.views = self._split(self.buckets)

    def _split(self, tensors: Sequence[torch.Tensor]) -> dict[str, torch.Tensor]:
        """Canonical name → view into its bucket."""
        own, found = self.training.parameters, {}
        for names, tensor in zip(self.layout, tensors, strict=True):
            parts = tensor.split([own[n].numel() for n in names])
            found |= {n: part.view_as(own[n]) for n, part in zip(names, parts, strict=True)}
        return found

    def gradient(
        self, batch: Array, factor: float
    ) -> tuple[list[tuple[torch.Tensor, float]] | None, list[torch.Tensor]]:
        for bucket in self.buckets:
            bucket.zero_()
        for name, parameter in self.training.parameters.items():
            parameter.grad = self.views[name]  # backward adds to what is there
        if not len(batch):
            return None, list(self.buckets)
        losses = [
            (self.training.backward(part, share * factor), share)
            for part, share in chunks(batch, self.training.chunk)
        ]
        return losses, list(self.buckets)

    def update(self, gradients: Sequence[torch.Tensor], step: int) -> None:
        for bucket, found in zip(self.buckets, gradients, strict=True):
            if found is not bucket:
                bucket.copy_(found)
        self.training.update(step)

    @torch.no_grad()
    def parameters(self) -> list[torch.Tensor]:
        own = self.training.parameters
        return [torch.cat([own[n].flatten() for n in names]) for names in self.layout]

    @torch.no_grad()
    def assign(self, parameters: Sequence[torch.Tensor]) -> None:
        for name, view in self._split(parameters).items():
            self.training.parameters[name].copy_(view)

    def named(self, tensors: Sequence[torch.Tensor]) -> dict[str, Array]:
        split = self._split(tensors)
        return {n: split[n].detach().cpu().numpy().copy() for n in self.training.parameters}
