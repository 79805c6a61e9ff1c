"""Attention decomposed into the calls that PyTorch's fused kernel combines.

A port without such a kernel makes the same calls, so that the two sides can be aligned, and each
call can be mutated separately.
"""

from __future__ import annotations

import math

import torch
from torch.nn import functional

Tensor = torch.Tensor


def attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    """Compute attention as documented for `torch.nn.functional.scaled_dot_product_attention`; a
    query that may attend to no key gives zeros.

    Args:
        query: (…, heads, queries, size).
        key, value: (…, heads, keys, size); with ``enable_gqa`` fewer heads, each for several of
            the queries.
    """
    if enable_gqa and (times := query.shape[-3] // key.shape[-3]) > 1:
        key, value = key.repeat_interleave(times, -3), value.repeat_interleave(times, -3)
    scores = query @ key.transpose(-2, -1)
    scores = scores * (1 / math.sqrt(query.shape[-1]) if scale is None else scale)
    if is_causal:
        causal = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).tril(0)
        scores = scores.masked_fill(~causal, -math.inf)
    if attn_mask is not None:
        if attn_mask.dtype == torch.bool:
            scores = scores.masked_fill(~attn_mask, -math.inf)
        else:
            scores = scores + attn_mask
    weights = functional.softmax(scores, -1)
    if (empty := fully_masked_queries(scores)) is not None:
        weights = weights.masked_fill(empty, 0.0)
    if dropout_p:
        weights = functional.dropout(weights, dropout_p)
    return weights @ value


def fully_masked_queries(scores: Tensor) -> Tensor | None:
    """Return a mask (…, queries, 1) that is True for queries whose scores (…, queries, keys) are
    all −∞ and whose output is to be zero; None if there are none."""
    with torch._C.DisableTorchFunction():
        empty = torch.isneginf(scores).all(-1, keepdim=True)
        return empty if empty.any() else None
