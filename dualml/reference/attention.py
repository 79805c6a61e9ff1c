"""Forward and backward of attention in float64 NumPy; see `layers`.

Shapes: B batch, N heads, T positions, K entries of a head.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from dualml.model.layers import Attention
from dualml.reference.types import Array, Params


def attention_forward(layer: Attention, x: Array, params: Params) -> tuple[Array, Any]:
    b, length, width = x.shape
    q, k, v = x.reshape(b, length, 3, layer.heads, -1).transpose(2, 0, 3, 1, 4)  # B N T K each
    scores = q @ k.swapaxes(2, 3) / np.sqrt(q.shape[-1])
    if layer.causal:
        scores[..., np.triu(np.ones((length, length), bool), 1)] = -np.inf
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    weights /= weights.sum(axis=-1, keepdims=True)
    y = (weights @ v).transpose(0, 2, 1, 3).reshape(b, length, width // 3)
    return y, (q, k, v, weights)


def attention_backward(
    layer: Attention, dy: Array, cache: Any, params: Params
) -> tuple[Array, Params]:
    """Through the softmax p: ds = p ∘ (dp − Σ p ∘ dp)."""
    q, k, v, weights = cache
    b, length, width = dy.shape
    d_heads = dy.reshape(b, length, layer.heads, -1).transpose(0, 2, 1, 3)  # B N T K
    d_weights = d_heads @ v.swapaxes(2, 3)
    d_scores = weights * (d_weights - (weights * d_weights).sum(axis=-1, keepdims=True))
    d_scores /= np.sqrt(q.shape[-1])  # where it is masked, the weight is zero, and so is this
    parts = (d_scores @ k, d_scores.swapaxes(2, 3) @ q, weights.swapaxes(2, 3) @ d_heads)
    return np.stack(parts).transpose(1, 3, 0, 2, 4).reshape(b, length, 3 * width), {}
