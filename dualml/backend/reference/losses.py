"""Losses and their gradients with respect to the logits, in float64 NumPy.

Logits are (B, K) with labels (B,), or (B, T, K) with (B, T): every position counts as a sample.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from dualml.backend.reference.types import Array, as_matrix

Labels = NDArray[np.int64]
Loss = Callable[[Array, Labels], tuple[float, Array]]


def cross_entropy(logits: Array, labels: Labels) -> tuple[float, Array]:
    """Return the mean of −log softmax(logits)[label] in nats, and its gradient with respect to the
    logits, in their shape."""
    flat, at = as_matrix(logits), (np.arange(labels.size), labels.ravel())
    shifted = flat - flat.max(axis=1, keepdims=True)
    gradient = np.exp(shifted)
    total = gradient.sum(axis=1, keepdims=True)
    loss = float((np.log(total[:, 0]) - shifted[at]).mean())
    gradient /= total
    gradient[at] -= 1
    gradient /= labels.size
    return loss, gradient.reshape(logits.shape)


def mse(logits: Array, labels: Labels) -> tuple[float, Array]:
    """Return the mean over all entries of (logits − one-hot)², and its gradient with respect to the
    logits, in their shape."""
    error = logits.copy()
    as_matrix(error)[np.arange(labels.size), labels.ravel()] -= 1
    return float((error * error).mean()), 2 * error / error.size


LOSSES: dict[str, Loss] = {"cross_entropy": cross_entropy, "mse": mse}
