"""Forward and backward passes of sequence layers in float64 NumPy; see `layers`.

Shapes: B batch, T positions, I inputs, H hidden, D features; N heads, K entries per head.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from dualml.algorithms.model.layers import (
    Attention,
    Embedding,
    First,
    LayerNorm,
    MeanPool,
    Position,
    Rows,
)
from dualml.backend.reference.types import TOKEN_MASK, Array, Params, as_matrix


def embedding_forward(layer: Embedding, tokens: Any, params: Params) -> tuple[Array, Any]:
    """Return the table's rows of integer ``tokens``, (B, T) → (B, T, D), and the cache (row, mask).
    A token outside ``layer.first`` … ``layer.first + layer.words − 1``, which belongs to another
    rank's part of the table, gives zeros."""
    row = tokens - layer.first
    here = (row >= 0) & (row < layer.words)
    row = np.where(here, row, 0)
    return params["weight"][row] * here[..., None], (row, here)


def embedding_backward(
    layer: Embedding, dy: Array, cache: Any, params: Params
) -> tuple[Array, Params]:
    """Return zeros (B, T) as dx, because tokens have no gradient, and the gradient of the table, in
    which equal tokens add up."""
    row, here = cache
    weight = np.zeros_like(params["weight"])
    np.add.at(weight, row[here], dy[here])
    return np.zeros(row.shape), {"weight": weight}


def position_forward(layer: Position, x: Array, params: Params) -> tuple[Array, Any]:
    """Add the learned position table (T, D) to x (B, T, D); there is no cache."""
    return x + params["weight"], None


def position_backward(
    layer: Position, dy: Array, cache: Any, params: Params
) -> tuple[Array, Params]:
    """Return ``dy`` (B, T, D) unchanged, and as gradient of the position table its sum over the
    batch."""
    return dy, {"weight": dy.sum(axis=0)}


def rows_forward(layer: Rows, x_B1HW: Array, params: Params) -> tuple[Array, Any]:
    """Drop the channel axis of grey images, (B, 1, H, W) → (B, H, W); there is no cache."""
    return x_B1HW[:, 0], None


def rows_backward(layer: Rows, dy_BHW: Array, cache: Any, params: Params) -> tuple[Array, Params]:
    """Restore the channel axis: (B, H, W) → (B, 1, H, W)."""
    return dy_BHW[:, None], {}


def mean_forward(layer: MeanPool, x_BTD: Array, params: Params) -> tuple[Array, Any]:
    """Return the mean over the positions, (B, T, D) → (B, D); a masked layer counts only positions
    that hold a token. The cache is the input's shape or, if masked, each position's share of the
    mean, (B, T, 1)."""
    if not layer.masked:
        return x_BTD.mean(axis=1), x_BTD.shape
    here = params[TOKEN_MASK]
    share_BT1 = (here / here.sum(axis=1, keepdims=True))[..., None]
    return (x_BTD * share_BT1).sum(axis=1), share_BT1


def mean_backward(
    layer: MeanPool, dy_BD: Array, cache: Any, params: Params
) -> tuple[Array, Params]:
    """Return the gradient of the mean over positions, (B, D) → (B, T, D); the cache is the input's
    shape, or each position's share of the mean."""
    if not layer.masked:
        return np.broadcast_to(dy_BD[:, None] / cache[1], cache), {}
    return dy_BD[:, None] * cache, {}


def first_forward(layer: First, x_BTD: Array, params: Params) -> tuple[Array, Any]:
    """Return the first position, (B, T, D) → (B, D), and the input's shape as cache."""
    return x_BTD[:, 0], x_BTD.shape


def first_backward(layer: First, dy_BD: Array, shape: Any, params: Params) -> tuple[Array, Params]:
    """Return a gradient of ``shape`` (B, T, D): ``dy_BD`` at the first position, zero elsewhere."""
    dx = np.zeros(shape)
    dx[:, 0] = dy_BD
    return dx, {}


def attention_forward(layer: Attention, x: Array, params: Params) -> tuple[Array, Any]:
    """Compute multi-head attention, (B, T, 3·N·K) → (B, T, N·K): the last axis holds queries, keys
    and values. A causal layer hides later keys; positions where ``params[TOKEN_MASK]``, if present,
    is False are hidden. The cache is queries, keys, values and attention weights by heads."""
    b, length, width = x.shape
    q, k, v = x.reshape(b, length, 3, layer.heads, -1).transpose(2, 0, 3, 1, 4)  # B N T K each
    scores = q @ k.swapaxes(2, 3) / np.sqrt(q.shape[-1])
    if layer.causal:
        scores[..., np.triu(np.ones((length, length), bool), 1)] = -np.inf
    if TOKEN_MASK in params:
        scores = np.where(params[TOKEN_MASK][:, None, None], scores, -np.inf)
    weights = softmax(scores)
    y = (weights @ v).transpose(0, 2, 1, 3).reshape(b, length, width // 3)
    return y, (q, k, v, weights)


def attention_backward(
    layer: Attention, dy: Array, cache: Any, params: Params
) -> tuple[Array, Params]:
    """Return the gradient of queries, keys and values, (B, T, N·K) → (B, T, 3·N·K), and no
    parameter gradients."""
    q, k, v, weights = cache
    b, length, width = dy.shape
    d_heads = dy.reshape(b, length, layer.heads, -1).transpose(0, 2, 1, 3)  # B N T K
    d_weights = d_heads @ v.swapaxes(2, 3)
    d_scores = softmax_backward(weights, d_weights)
    d_scores /= np.sqrt(q.shape[-1])  # zero where masked, because the weight is zero there
    parts = (d_scores @ k, d_scores.swapaxes(2, 3) @ q, weights.swapaxes(2, 3) @ d_heads)
    return np.stack(parts).transpose(1, 3, 0, 2, 4).reshape(b, length, 3 * width), {}


def softmax(scores: Array) -> Array:
    """Return the softmax along the last axis."""
    weights: Array = np.exp(scores - scores.max(axis=-1, keepdims=True))
    weights /= weights.sum(axis=-1, keepdims=True)
    return weights


def softmax_backward(weights: Array, flow: Array) -> Array:
    """Return the gradient ds = p ∘ (dp − Σ p ∘ dp) with respect to the scores of the softmax p =
    ``weights`` along the last axis; ``flow`` is dp."""
    slope: Array = weights * (flow - (weights * flow).sum(axis=-1, keepdims=True))
    return slope


def layer_norm_forward(layer: LayerNorm, x: Array, params: Params) -> tuple[Array, Any]:
    """Return the layer normalisation along the last axis, scaled by ``weight`` and shifted by
    ``bias``; the cache is the normalised values and their scale."""
    centred = x - x.mean(axis=-1, keepdims=True)
    scale = 1 / np.sqrt((centred**2).mean(axis=-1, keepdims=True) + layer.eps)
    normal = centred * scale
    return normal * params["weight"] + params["bias"], (normal, scale)


def layer_norm_backward(
    layer: LayerNorm, dy: Array, cache: Any, params: Params
) -> tuple[Array, Params]:
    """Return the gradients of layer normalisation with respect to x and to ``weight`` and ``bias``.
    Mean and variance depend on x, so both projections of the gradient are subtracted.

    Source: Ioffe and Szegedy 2015, "Batch Normalization", sec. 3, along the other axis.
    """
    normal, scale = cache
    grads = {"weight": as_matrix(dy * normal).sum(axis=0), "bias": as_matrix(dy).sum(axis=0)}
    flow = dy * params["weight"]
    mean = flow.mean(axis=-1, keepdims=True)
    along = (flow * normal).mean(axis=-1, keepdims=True)
    return scale * (flow - mean - normal * along), grads
