"""The losses and their gradients with respect to the logits, in float64 NumPy."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


def cross_entropy(logits: Array, labels: NDArray[np.int64]) -> tuple[float, Array]:
    """Mean of −log softmax(logits)[label] in nat, logits (B, K), labels (B,), and its gradient."""
    shifted = logits - logits.max(axis=1, keepdims=True)
    log_sum = np.log(np.exp(shifted).sum(axis=1))
    rows = np.arange(len(labels))
    loss = float((log_sum - shifted[rows, labels]).mean())
    gradient = np.exp(shifted - log_sum[:, None])
    gradient[rows, labels] -= 1
    return loss, gradient / len(labels)


def mse(logits: Array, labels: NDArray[np.int64]) -> tuple[float, Array]:
    """Mean over all B·K elements of (logits − one-hot)², and its gradient."""
    error = logits.copy()
    error[np.arange(len(labels)), labels] -= 1
    return float((error * error).mean()), 2 * error / error.size


LOSSES = {"cross_entropy": cross_entropy, "mse": mse}
