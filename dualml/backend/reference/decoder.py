"""Forward and backward passes of decoder layers in float64 NumPy; see `layers`.

Shapes: B batch, T positions, G groups of R heads, K entries per head.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from dualml.algorithms.model.decoder import GroupedAttention, RMSNorm, SwiGLU, rotary_cos_sin
from dualml.backend.reference.recurrent import sigmoid
from dualml.backend.reference.sequence import softmax, softmax_backward
from dualml.backend.reference.types import Array, Params, as_matrix


def rms_forward(layer: RMSNorm, x: Array, params: Params) -> tuple[Array, Any]:
    """Return x / √(mean(x²) + eps) ∘ weight, with the mean along the last axis, and as cache the
    normalised values and their scale."""
    scale = 1 / np.sqrt((x * x).mean(axis=-1, keepdims=True) + layer.eps)
    normal = x * scale
    return normal * params["weight"], (normal, scale)


def rms_backward(layer: RMSNorm, dy: Array, cache: Any, params: Params) -> tuple[Array, Params]:
    """Return the gradients of RMSNorm with respect to x, (…, D), and weight, (D,). Its scale
    depends on x, so the projection of the gradient on the normalised values is subtracted."""
    normal, scale = cache
    flow = dy * params["weight"]
    along = (flow * normal).mean(axis=-1, keepdims=True)
    return scale * (flow - normal * along), {"weight": as_matrix(dy * normal).sum(axis=0)}


def swiglu_forward(layer: SwiGLU, x: Array, params: Params) -> tuple[Array, Any]:
    """Return g · σ(g) · u of the halves g and u of the last axis, (…, 2·D) → (…, D), and the cache
    (g, u, σ(g))."""
    gate, up = np.split(x, 2, axis=-1)
    share = sigmoid(gate)
    return gate * share * up, (gate, up, share)


def swiglu_backward(layer: SwiGLU, dy: Array, cache: Any, params: Params) -> tuple[Array, Params]:
    """Return the gradients of both halves in one array, (…, D) → (…, 2·D), and no parameter
    gradients."""
    gate, up, share = cache
    slope = share * (1 + gate * (1 - share))
    return np.concatenate([dy * up * slope, dy * gate * share], axis=-1), {}


def grouped_forward(layer: GroupedAttention, x: Array, params: Params) -> tuple[Array, Any]:
    """Compute causal grouped attention, (B, T, G·(R + 2)·K) → (B, T, G·R·K), and its cache. The
    heads of a group see the same keys, so that their queries form one long sequence; they are
    rotated by their positions if ``layer.base``."""
    b, length, _ = x.shape
    r, shape = layer.heads_per_group, (b, layer.kv_heads, -1, layer.width)
    parts = x.reshape(b, length, layer.kv_heads, r + 2, layer.width).transpose(0, 2, 3, 1, 4)
    q, k, v = parts[:, :, :r], parts[:, :, r], parts[:, :, r + 1]  # B G R T K, B G T K twice
    if layer.base:
        q, k = apply_rotary(layer, q), apply_rotary(layer, k)
    q = q.reshape(shape)
    scores = q @ k.swapaxes(2, 3) / np.sqrt(layer.width)  # B G RT T
    later = np.triu(np.ones((length, length), bool), 1)
    scores[..., np.tile(later, (r, 1))] = -np.inf
    weights = softmax(scores)
    y = (weights @ v).reshape(b, layer.kv_heads, r, length, layer.width)
    return y.transpose(0, 3, 1, 2, 4).reshape(b, length, -1), (q, k, v, weights)


def grouped_backward(
    layer: GroupedAttention, dy: Array, cache: Any, params: Params
) -> tuple[Array, Params]:
    """Return the gradient of the input, (B, T, G·R·K) → (B, T, G·(R + 2)·K), and no parameter
    gradients; a key and a value sum the gradients of all heads of their group."""
    q, k, v, weights = cache
    b, length, _ = dy.shape
    r, groups, width = layer.heads_per_group, layer.kv_heads, layer.width
    flow = dy.reshape(b, length, groups, r, width).transpose(0, 2, 3, 1, 4)
    flow = flow.reshape(b, groups, -1, width)  # B G RT K
    d_scores = softmax_backward(weights, flow @ v.swapaxes(2, 3)) / np.sqrt(width)
    dq = (d_scores @ k).reshape(b, groups, r, length, width)
    dk, dv = d_scores.swapaxes(2, 3) @ q, weights.swapaxes(2, 3) @ flow
    if layer.base:
        dq, dk = apply_rotary(layer, dq, inverse=True), apply_rotary(layer, dk, inverse=True)
    parts = np.concatenate([dq, dk[:, :, None], dv[:, :, None]], axis=2)  # B G R+2 T K
    return parts.transpose(0, 3, 1, 2, 4).reshape(b, length, -1), {}


def apply_rotary(
    layer: GroupedAttention, x: Array, *, inverse: bool = False, positions: Any = slice(None)
) -> Array:
    """Return (…, T, K) with the rotary position embedding: entries i and i + K / 2 are rotated as a
    pair by the angle of their position, or back.

    Args:
        inverse: whether to rotate by the negative angles.
        positions: the positions of the T entries, where some are missing.
    """
    cos, sin = (angles[positions] for angles in rotary_cos_sin(layer))
    sin = -sin if inverse else sin
    a, b = np.split(x, 2, axis=-1)
    return np.concatenate([a * cos - b * sin, b * cos + a * sin], axis=-1)
