"""Models in PyTorch for comparisons with real weights."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

WIDTH, HEADS, VOCABULARY = 32, 4, 20


class Block(nn.Module):
    """A block with rotary embeddings of two halves and one matrix for queries, keys, values."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)

    def rotate(self, x: Any) -> Any:
        dims = x.shape[-1]
        rates = 1 / 100 ** (torch.arange(0, dims, 2) / dims)
        angles = torch.outer(torch.arange(x.shape[-2]), rates).repeat(1, 2)
        low, high = x.chunk(2, -1)
        return x * torch.cos(angles) + torch.cat([-high, low], -1) * torch.sin(angles)

    def forward(self, x: Any) -> Any:
        batch, length, _ = x.shape
        q, k, v = (
            part.view(batch, length, HEADS, -1).transpose(1, 2)
            for part in self.qkv(self.norm(x)).chunk(3, -1)
        )
        scores = self.rotate(q) @ self.rotate(k).transpose(-1, -2) / (WIDTH // HEADS) ** 0.5
        mixed = torch.softmax(scores, -1) @ v
        return x + self.out(mixed.transpose(1, 2).reshape(x.shape))


class Net(nn.Module):
    """An embedding, a block and a head that shares the embedding's weights."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.block = nn.Embedding(VOCABULARY, WIDTH), Block()
        self.head = nn.Linear(WIDTH, VOCABULARY, bias=False)
        self.head.weight = self.embedding.weight

    def forward(self, x: Any) -> Any:
        return self.head(self.block(self.embedding(x)))
