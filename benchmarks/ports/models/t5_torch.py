"""A small T5 encoder with bucketed relative positions."""

import math

import torch
from torch import nn
from torch.nn import functional as F


class T5LayerNorm(nn.Module):
    """No mean, no bias."""

    def __init__(self, d, eps=1e-6):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(d))
        self.eps = eps

    def forward(self, x):
        variance = x.pow(2).mean(-1, keepdim=True)
        return self.weight * x * torch.rsqrt(variance + self.eps)


def relative_bucket(relative, buckets=8, max_distance=16):
    """Half of the buckets for each direction, the far ones logarithmic."""
    buckets //= 2
    result = (relative > 0).long() * buckets
    relative = relative.abs()
    exact = buckets // 2
    far = (
        exact
        + (
            torch.log(relative.float().clamp(min=1) / exact)
            / math.log(max_distance / exact)
            * (buckets - exact)
        ).long()
    )
    far = torch.clamp(far, max=buckets - 1)
    return result + torch.where(relative < exact, relative, far)


class Attention(nn.Module):
    """Attention without the division by the root of the size."""

    def __init__(self, d, heads, has_bias):
        super().__init__()
        self.heads = heads
        self.q = nn.Linear(d, d, bias=False)
        self.k = nn.Linear(d, d, bias=False)
        self.v = nn.Linear(d, d, bias=False)
        self.o = nn.Linear(d, d, bias=False)
        if has_bias:
            self.relative_attention_bias = nn.Embedding(8, heads)

    def bias(self, t):
        positions = torch.arange(t)
        buckets = relative_bucket(positions[None, :] - positions[:, None])
        return self.relative_attention_bias(buckets).permute(2, 0, 1).unsqueeze(0)

    def forward(self, x, position_bias):
        b, t, d = x.shape

        def heads(y):
            return y.view(b, t, self.heads, -1).transpose(1, 2)

        scores = heads(self.q(x)) @ heads(self.k(x)).transpose(2, 3) + position_bias
        y = F.softmax(scores, dim=-1) @ heads(self.v(x))
        return self.o(y.transpose(1, 2).reshape(b, t, d))


class Block(nn.Module):
    """Attention and a ReLU network, each after a norm."""

    def __init__(self, d, heads, ff, has_bias):
        super().__init__()
        self.attention = Attention(d, heads, has_bias)
        self.attention_norm = T5LayerNorm(d)
        self.wi = nn.Linear(d, ff, bias=False)
        self.wo = nn.Linear(ff, d, bias=False)
        self.ff_norm = T5LayerNorm(d)

    def forward(self, x, bias):
        x = x + self.attention(self.attention_norm(x), bias)
        return x + self.wo(F.relu(self.wi(self.ff_norm(x))))


class Net(nn.Module):
    """Two blocks which share the first one's bias."""

    def __init__(self, vocab=20, d=16, heads=2, ff=32):
        super().__init__()
        self.shared = nn.Embedding(vocab, d)
        self.block = nn.ModuleList([Block(d, heads, ff, i == 0) for i in range(2)])
        self.final_layer_norm = T5LayerNorm(d)

    def forward(self, ids, lengths):
        t = ids.shape[1]
        bias = self.block[0].attention.bias(t)
        padded = torch.arange(t)[None, :] >= lengths[:, None] + 4
        bias = bias.masked_fill(padded[:, None, None, :], torch.finfo(torch.float32).min)
        x = self.shared(ids)
        for block in self.block:
            x = block(x, bias)
        return self.final_layer_norm(x)
