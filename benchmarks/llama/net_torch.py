"""A decoder in the shape of Llama, in PyTorch: RMSNorm, rotary positions, SwiGLU, grouped queries.

``build_5m`` … ``build_7b`` return the model in the sizes of `sizes`.
"""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional

sys.path.insert(0, str(Path(__file__).parent))
from sizes import SIZES, TOKENS, Size, rotary_table


class RMSNorm(nn.Module):
    def __init__(self, width: int, eps: float = 1e-5) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.eps = eps

    def forward(self, x):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps) * self.weight


def rotate(x, cos, sin):
    """Turn pairs of channels by the angle of their position; x: (batch, heads, tokens, width)."""
    half = x.shape[-1] // 2
    a, b = x[..., :half], x[..., half:]
    return torch.cat((a * cos - b * sin, b * cos + a * sin), -1)


class Attention(nn.Module):
    def __init__(self, size: Size) -> None:
        super().__init__()
        self.heads, self.kv_heads = size.heads, size.kv_heads
        self.head = size.width // size.heads
        self.q = nn.Linear(size.width, size.width, bias=False)
        self.k = nn.Linear(size.width, size.kv_heads * self.head, bias=False)
        self.v = nn.Linear(size.width, size.kv_heads * self.head, bias=False)
        self.o = nn.Linear(size.width, size.width, bias=False)

    def split(self, x, heads):
        return x.reshape(x.shape[0], x.shape[1], heads, self.head).transpose(1, 2)

    def forward(self, x, cos, sin, mask):
        q = rotate(self.split(self.q(x), self.heads), cos, sin)
        k = rotate(self.split(self.k(x), self.kv_heads), cos, sin)
        v = self.split(self.v(x), self.kv_heads)
        if self.kv_heads != self.heads:
            k = k.repeat_interleave(self.heads // self.kv_heads, 1)
            v = v.repeat_interleave(self.heads // self.kv_heads, 1)
        scores = q @ k.transpose(-1, -2) / self.head**0.5 + mask
        y = functional.softmax(scores, -1) @ v
        return self.o(y.transpose(1, 2).reshape(x.shape))


class MLP(nn.Module):
    def __init__(self, size: Size) -> None:
        super().__init__()
        self.gate = nn.Linear(size.width, size.inner, bias=False)
        self.up = nn.Linear(size.width, size.inner, bias=False)
        self.down = nn.Linear(size.inner, size.width, bias=False)

    def forward(self, x):
        return self.down(functional.silu(self.gate(x)) * self.up(x))


class Block(nn.Module):
    def __init__(self, size: Size) -> None:
        super().__init__()
        self.attention_norm, self.mlp_norm = RMSNorm(size.width), RMSNorm(size.width)
        self.attention, self.mlp = Attention(size), MLP(size)

    def forward(self, x, cos, sin, mask):
        x = x + self.attention(self.attention_norm(x), cos, sin, mask)
        return x + self.mlp(self.mlp_norm(x))


class Llama(nn.Module):
    def __init__(self, size: Size) -> None:
        super().__init__()
        self.embedding = nn.Embedding(size.vocab, size.width)
        self.blocks = nn.ModuleList(Block(size) for _ in range(size.layers))
        self.norm = RMSNorm(size.width)
        self.head = nn.Linear(size.width, size.vocab, bias=False)
        cos, sin = map(torch.from_numpy, rotary_table(size))
        self.register_buffer("cos", cos, persistent=False)
        self.register_buffer("sin", sin, persistent=False)
        mask = torch.full((TOKENS, TOKENS), -1e9).triu(1)
        self.register_buffer("mask", mask, persistent=False)

    def forward(self, tokens):
        x = self.embedding(tokens)
        for block in self.blocks:
            x = block(x, self.cos, self.sin, self.mask)
        return self.head(self.norm(x))


build_5m, build_20m, build_60m, build_159m, build_1100m, build_7b = (
    partial(Llama, size) for size in SIZES.values()
)
