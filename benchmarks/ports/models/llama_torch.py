"""A small Llama in Meta's style: complex rotation of neighbouring pairs."""

import torch
from torch import nn
from torch.nn import functional as F


class RMSNorm(nn.Module):
    """Root mean square norm."""

    def __init__(self, dim, eps=1e-5):
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(dim))

    def forward(self, x):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps) * self.weight


def rotate(x, freqs):
    """Rotate pairs (0, 1), (2, 3), ... of the last axis."""
    pairs = torch.view_as_complex(x.float().reshape(*x.shape[:-1], -1, 2))
    return torch.view_as_real(pairs * freqs[None, :, None, :]).flatten(3)


class Attention(nn.Module):
    """Grouped-query attention."""

    def __init__(self, dim, heads, kv_heads):
        super().__init__()
        self.heads, self.kv_heads, self.size = heads, kv_heads, dim // heads
        self.wq = nn.Linear(dim, heads * self.size, bias=False)
        self.wk = nn.Linear(dim, kv_heads * self.size, bias=False)
        self.wv = nn.Linear(dim, kv_heads * self.size, bias=False)
        self.wo = nn.Linear(heads * self.size, dim, bias=False)

    def forward(self, x, freqs, mask):
        b, t, _ = x.shape
        q = self.wq(x).view(b, t, self.heads, self.size)
        k = self.wk(x).view(b, t, self.kv_heads, self.size)
        v = self.wv(x).view(b, t, self.kv_heads, self.size)
        q, k = rotate(q, freqs), rotate(k, freqs)
        k, v = (a.repeat_interleave(self.heads // self.kv_heads, dim=2) for a in (k, v))
        scores = torch.einsum("bqhd,bkhd->bhqk", q, k) * self.size**-0.5 + mask
        y = torch.einsum("bhqk,bkhd->bqhd", scores.softmax(-1), v)
        return self.wo(y.reshape(b, t, -1))


class FeedForward(nn.Module):
    """SwiGLU."""

    def __init__(self, dim, hidden):
        super().__init__()
        self.w1 = nn.Linear(dim, hidden, bias=False)
        self.w2 = nn.Linear(hidden, dim, bias=False)
        self.w3 = nn.Linear(dim, hidden, bias=False)

    def forward(self, x):
        return self.w2(F.silu(self.w1(x)) * self.w3(x))


class Block(nn.Module):
    """Pre-norm block."""

    def __init__(self, dim, heads, kv_heads, hidden):
        super().__init__()
        self.attention = Attention(dim, heads, kv_heads)
        self.feed_forward = FeedForward(dim, hidden)
        self.attention_norm = RMSNorm(dim)
        self.ffn_norm = RMSNorm(dim)

    def forward(self, x, freqs, mask):
        x = x + self.attention(self.attention_norm(x), freqs, mask)
        return x + self.feed_forward(self.ffn_norm(x))


class Net(nn.Module):
    """Two blocks; logits of the last position."""

    def __init__(self, vocab=20, dim=32, heads=4, kv_heads=2, hidden=24, layers=2, max_len=12):
        super().__init__()
        self.tok_embeddings = nn.Embedding(vocab, dim)
        nn.init.normal_(self.tok_embeddings.weight, std=0.02)
        self.layers = nn.ModuleList([Block(dim, heads, kv_heads, hidden) for _ in range(layers)])
        self.norm = RMSNorm(dim)
        self.output = nn.Linear(dim, vocab, bias=False)
        size = dim // heads
        freqs = 1.0 / 10000.0 ** (torch.arange(0, size, 2).float() / size)
        angles = torch.outer(torch.arange(max_len).float(), freqs)
        self.freqs = torch.polar(torch.ones_like(angles), angles)

    def forward(self, tokens):
        t = tokens.shape[1]
        mask = torch.full((t, t), float("-inf")).triu(1)
        h = self.tok_embeddings(tokens)
        for layer in self.layers:
            h = layer(h, self.freqs[:t], mask)
        return self.output(self.norm(h))[:, -1]
