"""A classifier of tokens in NumPy: its summed loss over real tokens, and the gradient."""

from __future__ import annotations

from typing import Any

import numpy as np

from dualml.course.exercise import Array

WEIGHTS = ("w", "b")
#: Label of a position that is padding, not a token.
IGNORED = -100
Weights = dict[str, Any]


def token_loss(
    p: Weights, x: Array, y: Array, learn_padding: bool = False
) -> tuple[Any, Weights, int]:
    """Compute the sum of the real tokens' cross-entropies, its gradient, and their number.

    Args:
        p: ``w`` (F, C) and ``b`` (C,); the logits are x·w + b.
        x: (B, T, F) positions; y: (B, T) classes, `IGNORED` where there is no token.
        learn_padding: whether padding counts as a token of class 0, which is a mistake.
    """
    flat, label = x.reshape(-1, x.shape[-1]), y.reshape(-1)
    real = np.ones(len(label), bool) if learn_padding else label != IGNORED
    target = np.where(label == IGNORED, 0, label)
    logits = flat @ p["w"] + p["b"]
    moved = logits - logits.max(1, keepdims=True)
    powers = np.exp(moved)
    total = powers.sum(1, keepdims=True)
    rows = np.arange(len(label))
    losses = (np.log(total)[:, 0] - moved[rows, target]) * real
    d = powers / total
    d[rows, target] -= 1
    d = d * real[:, None]
    return losses.sum(), {"w": flat.T @ d, "b": d.sum(0)}, int(real.sum())


def norm_of(gradient: Weights) -> Any:
    """Return the Euclidean norm of all numbers of a gradient together."""
    return np.sqrt(sum((g * g).sum() for g in gradient.values()))
