"""PyTorch modules of decoders.

Shapes: B batch, T positions, G groups of R heads, K entries of a head.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional

from dualml.algorithms.model.decoder import GroupedAttention as Spec
from dualml.algorithms.model.decoder import rotary_cos_sin


class SwiGLU(nn.Module):
    """SwiGLU activation, (…, 2·D) → (…, D)."""

    def forward(self, x: Tensor) -> Tensor:
        """Return silu(gate)·up, (…, D); the last axis of ``x``, 2·D, holds gate, then up."""
        gate, up = x.chunk(2, -1)
        return functional.silu(gate) * up


class GroupedAttention(nn.Module):
    """Causal grouped-query attention; written out on a GPU like `modules.Attention`. Rotary
    embeddings are computed in float32."""

    cos: Tensor
    sin: Tensor

    def __init__(self, layer: Spec) -> None:
        super().__init__()
        self.layer = layer
        if layer.base:
            for name, angles in zip(("cos", "sin"), rotary_cos_sin(layer), strict=True):
                self.register_buffer(name, torch.from_numpy(angles).float(), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        """Return the causal attention outputs (B, T, G·R·K) of ``x`` (B, T, G·(R + 2)·K), which
        holds R queries, a key and a value for each group, one group after the other; queries and
        keys are rotated first if the layer has a rotary base."""
        b, length, _ = x.shape
        r, groups, width = self.layer.heads_per_group, self.layer.kv_heads, self.layer.width
        parts = x.view(b, length, groups, r + 2, width)
        q, k, v = parts[..., :r, :], parts[..., r, :], parts[..., r + 1, :]  # B T G R K, B T G K
        if self.layer.base:
            q, k = self.rotate(q), self.rotate(k)
        if x.is_cpu:
            if r > 1:
                k, v = (y[..., None, :].expand(-1, -1, -1, r, -1) for y in (k, v))
            # In the order of x, which the kernel's result keeps: no copy is needed afterwards.
            q, k, v = (y.reshape(b, length, -1, width).transpose(1, 2) for y in (q, k, v))
            y = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
            return y.transpose(1, 2).reshape(b, length, -1)
        # The heads of a group see the same keys: their queries form one long sequence.
        q = q.permute(0, 2, 3, 1, 4).reshape(b, groups, -1, width)
        scores = q @ k.permute(0, 2, 3, 1) / math.sqrt(width)
        before = torch.ones(length, length, dtype=torch.bool, device=x.device).tril()
        weights = scores.masked_fill(~before.repeat(r, 1), -math.inf).softmax(-1)
        y = (weights @ v.transpose(1, 2)).view(b, groups, r, length, width)
        return y.permute(0, 3, 1, 2, 4).reshape(b, length, -1)

    def rotate(self, x: Tensor) -> Tensor:
        """Apply rotary embeddings of the positions 0 … T − 1 to queries or keys (B, T, …, K)."""
        return apply_rotary(x, self.cos, self.sin)


def apply_rotary(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotate the pairs of entries i and i + K / 2 of (B, T, …, K) by angles whose cosines and sines
    are (T, K / 2); computed in float32, returned as a new tensor of the type of ``x``."""
    first, second = x.float().chunk(2, -1)
    shape = (len(cos), *[1] * (x.dim() - 3), -1)
    cos, sin = cos.view(shape), sin.view(shape)
    y = torch.cat((first * cos - second * sin, second * cos + first * sin), -1)
    return y.to(x.dtype)
