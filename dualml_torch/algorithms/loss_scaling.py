"""Gradients of a scaled loss; `dualml.algorithms.precision.Scaler` controls the scale."""

from __future__ import annotations

from collections.abc import Iterable

import torch


@torch.no_grad()
def all_gradients_finite(parameters: Iterable[torch.Tensor]) -> bool:
    """Return whether all gradients are finite, None counting as finite; one synchronisation."""
    each = [p.grad.isfinite().all() for p in parameters if p.grad is not None]
    there = [one.to(each[0].device) for one in each]  # stages may lie on several devices
    return not each or bool(torch.stack(there).all())


@torch.no_grad()
def unscale_gradients(parameters: Iterable[torch.Tensor], scale: float) -> None:
    """Divide the gradients by the loss scale in place, skipping those that are None."""
    if gradients := [p.grad for p in parameters if p.grad is not None]:
        torch._foreach_mul_(gradients, 1 / scale)
