"""Ports in MindSpore for comparisons with real weights."""

from __future__ import annotations

from typing import ClassVar

import mindspore as ms
import numpy as np
from mindspore import nn, ops

WIDTH, HEADS, VOCABULARY = 32, 4, 20


class Layer(nn.Cell):
    """A block with rotary embeddings of neighbours and three matrices."""

    def __init__(self, pairs: bool) -> None:
        super().__init__()
        self.pairs = pairs
        self.layernorm = nn.LayerNorm((WIDTH,), epsilon=1e-5)
        self.wq, self.wk = nn.Dense(WIDTH, WIDTH), nn.Dense(WIDTH, WIDTH)
        self.wv, self.wo = nn.Dense(WIDTH, WIDTH), nn.Dense(WIDTH, WIDTH)

    def rotate(self, x: ms.Tensor) -> ms.Tensor:
        dims = x.shape[-1]
        rates = 1 / 100 ** (np.arange(0, dims, 2, dtype=np.float32) / dims)
        angles = ms.Tensor(np.outer(np.arange(x.shape[-2]), rates).astype(np.float32))
        cos, sin = ops.cos(angles), ops.sin(angles)
        if not self.pairs:
            low, high = x[..., : dims // 2], x[..., dims // 2 :]
            return ops.cat([low * cos - high * sin, high * cos + low * sin], -1)
        parts = x.reshape(*x.shape[:-1], -1, 2)
        even, odd = parts[..., 0], parts[..., 1]
        turned = ops.stack([even * cos - odd * sin, even * sin + odd * cos], -1)
        return turned.reshape(x.shape)

    def construct(self, x: ms.Tensor) -> ms.Tensor:
        batch, length, _ = x.shape
        h = self.layernorm(x)
        q, k, v = (
            layer(h).reshape(batch, length, HEADS, -1).transpose(0, 2, 1, 3)
            for layer in (self.wq, self.wk, self.wv)
        )
        scores = ops.matmul(self.rotate(q), self.rotate(k).transpose(0, 1, 3, 2))
        mixed = ops.matmul(ops.softmax(scores / (WIDTH // HEADS) ** 0.5, -1), v)
        return x + self.wo(mixed.transpose(0, 2, 1, 3).reshape(x.shape))


class Net(nn.Cell):
    """The port of a `Net` whose head is the table of its embedding."""

    pairs: ClassVar[bool] = False

    def __init__(self) -> None:
        super().__init__()
        self.tokens, self.layer = nn.Embedding(VOCABULARY, WIDTH), Layer(self.pairs)

    def construct(self, x: ms.Tensor) -> ms.Tensor:
        return ops.matmul(self.layer(self.tokens(x)), self.tokens.embedding_table.T)


class Pairs(Net):
    """The port with rotary embeddings of neighbours."""

    pairs = True
