"""One PyTorch update in separate steps: gradients are collected in buckets and applied from
there."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from numpy.typing import NDArray

from dualml.backend import split_into_chunks
from dualml_torch.algorithms.memory import nbytes
from dualml_torch.algorithms.training import TorchTraining

Array = NDArray[Any]


class TorchGradientBuckets:
    """PyTorch implementation of `dualml.backend.capability.GradientBuckets`."""

    def __init__(self, training: TorchTraining, layout: Sequence[Sequence[str]]) -> None:
        self.training, self.layout = training, layout
        own = training.parameters
        self.buckets = [
            torch.zeros(sum(own[n].numel() for n in names), device=training.device)
            for names in layout
        ]
        self.views = self._split_views(self.buckets)
        self.pairs = [[(own[n], self.views[n]) for n in names] for names in layout]

    def _split_views(self, tensors: Sequence[torch.Tensor]) -> dict[str, torch.Tensor]:
        """Map canonical parameter names to views, of the parameters' shapes, into flat tensors, one
        per bucket."""
        own, views = self.training.parameters, {}
        for names, tensor in zip(self.layout, tensors, strict=True):
            parts = tensor.split([own[n].numel() for n in names])
            views |= {n: part.view_as(own[n]) for n, part in zip(names, parts, strict=True)}
        return views

    def gradient(
        self, batch: Array, factor: float
    ) -> tuple[list[tuple[torch.Tensor, float]] | None, list[torch.Tensor]]:
        """Compute ``factor`` times the mean gradient of ``batch``, times the loss scale, which
        `update` divides out again, into the buckets, zeros for an empty batch; nothing is sent.
        Return pairs of a chunk's detached mean loss and share, None for an empty batch, and the
        buckets."""
        losses = self._backward(batch, factor)
        for bucket in range(len(self.buckets)):
            self._fill_bucket(bucket)
        return losses, list(self.buckets)

    def _backward(self, batch: Array, factor: float) -> list[tuple[torch.Tensor, float]] | None:
        """Compute ``factor`` times the gradient of the whole batch, times the loss scale, in every
        parameter's own ``grad``; return pairs of a chunk's detached mean loss and share, None for
        an empty batch."""
        self.training.zero_grad()
        losses = [
            (self.training.backward(part, share * factor), share)
            for part, share in split_into_chunks(batch, self.training.recipe.chunk)
        ]
        return losses or None

    @torch.no_grad()
    def _fill_bucket(self, bucket: int) -> None:
        """Copy all gradients of a bucket into it at once, zeros for missing ones; each ``grad``
        becomes a view of the bucket.

        If ``grad`` were such a view before, backward would add to a view that is zeroed first,
        which takes longer.
        """
        for parameter, view in self.pairs[bucket]:
            if parameter.grad is None:  # empty batch, or an unreached parameter
                parameter.grad = torch.zeros_like(view)
        views = [view for _, view in self.pairs[bucket]]
        torch._foreach_copy_(views, [parameter.grad for parameter, _ in self.pairs[bucket]])
        for parameter, view in self.pairs[bucket]:
            parameter.grad = view

    def update(self, gradients: Sequence[torch.Tensor], step: int) -> None:
        """Copy ``gradients``, one flat tensor per bucket, into the buckets, unless they are the
        buckets, and make update ``step`` with them divided by the loss scale; a loss scaler skips
        it if one is not finite. They count only where each ``grad`` is a view of its bucket, after
        `gradient`."""
        for bucket, gradient in zip(self.buckets, gradients, strict=True):
            if gradient is not bucket:
                bucket.copy_(gradient)
        self.training.update(step)

    @torch.no_grad()
    def parameters(self) -> list[torch.Tensor]:
        """Return copies of the parameters as one flat tensor per bucket."""
        own = self.training.parameters
        return [torch.cat([own[n].flatten() for n in names]) for names in self.layout]

    @torch.no_grad()
    def assign(self, parameters: Sequence[torch.Tensor]) -> None:
        """Copy these flat tensors, one per bucket, into the parameters in place."""
        for name, view in self._split_views(parameters).items():
            self.training.parameters[name].copy_(view)

    def bucket_bytes(self) -> int:
        """Return the bytes of all flat bucket tensors of this rank."""
        return nbytes(self.buckets)

    def unflatten(self, tensors: Sequence[torch.Tensor]) -> dict[str, Array]:
        """Split flat tensors, one per bucket, into host copies by canonical name, in the order of
        the parameters."""
        split = self._split_views(tensors)
        return {n: split[n].detach().cpu().numpy().copy() for n in self.training.parameters}
