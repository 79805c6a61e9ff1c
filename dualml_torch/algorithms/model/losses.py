"""The neutral losses in PyTorch: logits (B, K) with class numbers (B,), or (B, T, K) with (B, T),
where every position counts as a sample."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional


def cross_entropy(logits: Tensor, labels: Tensor) -> Tensor:
    """Return the mean over all samples and positions of −log softmax(logits)[label] in nat,
    0-dim."""
    return functional.cross_entropy(logits.flatten(0, -2), labels.flatten())


def mse(logits: Tensor, labels: Tensor) -> Tensor:
    """Return the mean over all samples, positions and classes of (logits − one-hot label)²,
    0-dim."""
    # Not one_hot: it reads the labels, which a recorded graph cannot.
    classes = torch.arange(logits.shape[-1], device=logits.device)
    target = (labels.unsqueeze(-1) == classes).to(logits.dtype)
    return functional.mse_loss(logits, target)


LOSSES: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "cross_entropy": cross_entropy,
    "mse": mse,
}
