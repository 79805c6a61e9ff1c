"""MindSpore cells of decoders.

Shapes: B batch, T positions, G groups of R heads, K entries of a head.
"""

from __future__ import annotations

import math

import mindspore as ms
import numpy as np
from mindspore import nn, ops

from dualml.algorithms.model.decoder import GroupedAttention as Spec
from dualml.algorithms.model.decoder import rotary_cos_sin
from dualml_ms.algorithms.model.modules import zero_parameter


class RMSNorm(nn.Cell):
    """RMS normalization, written out: MindSpore has a kernel for Ascend alone."""

    def __init__(self, features: int, eps: float) -> None:
        super().__init__()
        self.weight, self.eps = zero_parameter("weight", features), eps
        self.mean = ops.ReduceMean(keep_dims=True)

    def construct(self, x):
        """Divide ``x`` (…, D) by its root mean square along the last axis, ``eps`` added to the
        mean square, and multiply it by ``weight``."""
        return x / ops.sqrt(self.mean(x * x, -1) + self.eps) * self.weight.astype(ms.float32)


class SwiGLU(nn.Cell):
    """SwiGLU activation, (…, 2·D) → (…, D)."""

    def construct(self, x):
        """Return silu(gate) · up, (…, D), of ``x`` (…, 2·D): the gate is its first half, up its
        second."""
        half = x.shape[-1] // 2
        gate, up = x[..., :half], x[..., half:]
        return gate * ops.sigmoid(gate) * up


class GroupedAttention(nn.Cell):
    """Causal grouped-query attention, written out as for PyTorch. Rotary embeddings are computed in
    float32."""

    def __init__(self, layer: Spec) -> None:
        super().__init__()
        self.heads_per_group, self.groups, self.width = (
            layer.heads_per_group,
            layer.kv_heads,
            layer.width,
        )
        self.is_rotary, self.root = layer.base > 0, math.sqrt(layer.width)
        if self.is_rotary:
            self.cos, self.sin = (ms.Tensor(a.astype(np.float32)) for a in rotary_cos_sin(layer))

    def construct(self, x):
        """Return the causal attention outputs (B, T, G·R·K) of ``x`` (B, T, G·(R + 2)·K), which
        holds the queries, the key and the value of each group; queries and keys are rotated if the
        layer is rotary."""
        b, length, _ = x.shape
        r, groups, width = self.heads_per_group, self.groups, self.width
        parts = x.reshape(b, length, groups, r + 2, width).transpose(0, 2, 3, 1, 4)  # B G R+2 T K
        q, k, v = parts[:, :, :r], parts[:, :, r], parts[:, :, r + 1]
        if self.is_rotary:
            q, k = self.rotate(q), self.rotate(k)
        # The heads of a group see the same keys: their queries form one long sequence.
        scores = ops.matmul(q.reshape(b, groups, -1, width), k.swapaxes(2, 3))
        scores = scores.astype(ms.float32).reshape(b, groups, r, length, length) / self.root
        place = ops.arange(length)
        scores = ops.where(place.reshape(-1, 1) >= place, scores, -1e30)
        weights = ops.softmax(scores, -1).astype(v.dtype).reshape(b, groups, -1, length)
        y = ops.matmul(weights, v).reshape(b, groups, r, length, width)
        return y.transpose(0, 3, 1, 2, 4).reshape(b, length, -1)

    def rotate(self, x):
        """Apply rotary embeddings to ``x`` (…, T, K), in float32; return it in its own dtype."""
        y, half = x.astype(ms.float32), self.width // 2
        first, second = y[..., :half], y[..., half:]
        cos, sin = self.cos, self.sin
        y = ops.cat((first * cos - second * sin, second * cos + first * sin), -1)
        return y.astype(x.dtype)
