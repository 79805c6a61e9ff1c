"""The decoder of `net_torch`, in MindSpore. Its weights are zero: a comparison loads them."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path

import mindspore as ms
import numpy as np
from mindspore import nn, ops

sys.path.insert(0, str(Path(__file__).parent))
from sizes import SIZES, TOKENS, Size, rotary_table


class RMSNorm(nn.Cell):
    def __init__(self, width: int, eps: float = 1e-5) -> None:
        super().__init__()
        self.weight = ms.Parameter(ms.Tensor(np.ones(width, np.float32)), name="weight")
        self.eps = eps

    def construct(self, x):
        return x * ops.rsqrt(ops.square(x).mean(-1, keep_dims=True) + self.eps) * self.weight


def rotate(x, cos, sin):
    """Turn pairs of channels by the angle of their position; x: (batch, heads, tokens, width)."""
    half = x.shape[-1] // 2
    a, b = x[..., :half], x[..., half:]
    return ops.cat((a * cos - b * sin, b * cos + a * sin), -1)


def dense(inputs: int, outputs: int) -> nn.Dense:
    return nn.Dense(inputs, outputs, weight_init="zeros", has_bias=False)


class Attention(nn.Cell):
    def __init__(self, size: Size) -> None:
        super().__init__()
        self.heads, self.kv_heads = size.heads, size.kv_heads
        self.head = size.width // size.heads
        self.q = dense(size.width, size.width)
        self.k = dense(size.width, size.kv_heads * self.head)
        self.v = dense(size.width, size.kv_heads * self.head)
        self.o = dense(size.width, size.width)

    def split(self, x, heads):
        return x.reshape(x.shape[0], x.shape[1], heads, self.head).swapaxes(1, 2)

    def construct(self, x, cos, sin, mask):
        q = rotate(self.split(self.q(x), self.heads), cos, sin)
        k = rotate(self.split(self.k(x), self.kv_heads), cos, sin)
        v = self.split(self.v(x), self.kv_heads)
        if self.kv_heads != self.heads:
            k = ops.repeat_interleave(k, self.heads // self.kv_heads, 1)
            v = ops.repeat_interleave(v, self.heads // self.kv_heads, 1)
        scores = ops.matmul(q, k.swapaxes(-1, -2)) / self.head**0.5 + mask
        y = ops.matmul(ops.softmax(scores, -1), v)
        return self.o(y.swapaxes(1, 2).reshape(x.shape))


class MLP(nn.Cell):
    def __init__(self, size: Size) -> None:
        super().__init__()
        self.gate = dense(size.width, size.inner)
        self.up = dense(size.width, size.inner)
        self.down = dense(size.inner, size.width)

    def construct(self, x):
        return self.down(ops.silu(self.gate(x)) * self.up(x))


class Block(nn.Cell):
    def __init__(self, size: Size) -> None:
        super().__init__()
        self.attention_norm, self.mlp_norm = RMSNorm(size.width), RMSNorm(size.width)
        self.attention, self.mlp = Attention(size), MLP(size)

    def construct(self, x, cos, sin, mask):
        x = x + self.attention(self.attention_norm(x), cos, sin, mask)
        return x + self.mlp(self.mlp_norm(x))


class Llama(nn.Cell):
    def __init__(self, size: Size) -> None:
        super().__init__()
        self.embedding = nn.Embedding(size.vocab, size.width, embedding_table="zeros")
        self.blocks = nn.CellList([Block(size) for _ in range(size.layers)])
        self.norm = RMSNorm(size.width)
        self.head = dense(size.width, size.vocab)
        self.cos, self.sin = map(ms.Tensor, rotary_table(size))
        self.mask = ms.Tensor(np.triu(np.full((TOKENS, TOKENS), -1e9, np.float32), 1))

    def construct(self, tokens):
        x = self.embedding(tokens)
        for block in self.blocks:
            x = block(x, self.cos, self.sin, self.mask)
        return self.head(self.norm(x))


build_5m, build_20m, build_60m, build_159m, build_1100m, build_7b = (
    partial(Llama, size) for size in SIZES.values()
)
