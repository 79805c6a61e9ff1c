"""A small translation transformer after the original paper (norms last)."""

import math

import torch
from torch import nn


def sinusoids(length, d):
    """Sine on even and cosine on odd channels."""
    position = torch.arange(length).unsqueeze(1)
    div = torch.exp(torch.arange(0, d, 2) * (-math.log(10000.0) / d))
    table = torch.zeros(length, d)
    table[:, 0::2] = torch.sin(position * div)
    table[:, 1::2] = torch.cos(position * div)
    return table


class FeedForward(nn.Module):
    """Two linear layers."""

    def __init__(self, d, ff):
        super().__init__()
        self.linear1 = nn.Linear(d, ff)
        self.linear2 = nn.Linear(ff, d)

    def forward(self, x):
        return self.linear2(torch.relu(self.linear1(x)))


class EncoderLayer(nn.Module):
    """Self-attention and feed-forward."""

    def __init__(self, d, heads, ff):
        super().__init__()
        self.self_attn = nn.MultiheadAttention(d, heads, bias=False, batch_first=True)
        self.ff = FeedForward(d, ff)
        self.norm1 = nn.LayerNorm(d)
        self.norm2 = nn.LayerNorm(d)

    def forward(self, x, pad):
        y, _ = self.self_attn(x, x, x, key_padding_mask=pad, need_weights=False)
        x = self.norm1(x + y)
        return self.norm2(x + self.ff(x))


class DecoderLayer(nn.Module):
    """Causal self-attention, attention to the memory, feed-forward."""

    def __init__(self, d, heads, ff):
        super().__init__()
        self.self_attn = nn.MultiheadAttention(d, heads, bias=False, batch_first=True)
        self.cross_attn = nn.MultiheadAttention(d, heads, bias=False, batch_first=True)
        self.ff = FeedForward(d, ff)
        self.norm1 = nn.LayerNorm(d)
        self.norm2 = nn.LayerNorm(d)
        self.norm3 = nn.LayerNorm(d)

    def forward(self, x, memory, causal, pad):
        y, _ = self.self_attn(x, x, x, attn_mask=causal, need_weights=False)
        x = self.norm1(x + y)
        y, _ = self.cross_attn(x, memory, memory, key_padding_mask=pad)
        x = self.norm2(x + y)
        return self.norm3(x + self.ff(x))


class Net(nn.Module):
    """One encoder and two decoder layers."""

    def __init__(self, source=16, target=5, d=16, heads=4, ff=24):
        super().__init__()
        self.d = d
        self.src_embed = nn.Embedding(source, d)
        self.tgt_embed = nn.Embedding(target, d)
        self.register_buffer("pe", sinusoids(16, d), persistent=False)
        self.encoder = EncoderLayer(d, heads, ff)
        self.decoder = nn.ModuleList([DecoderLayer(d, heads, ff) for _ in range(2)])
        self.generator = nn.Linear(d, target)
        for table in (self.src_embed, self.tgt_embed):
            nn.init.normal_(table.weight, std=d**-0.5)

    def forward(self, source, lengths, target):
        s, t = source.size(1), target.size(1)
        pad = torch.arange(s)[None, :] >= (lengths + 3)[:, None]
        causal = torch.triu(torch.ones(t, t, dtype=torch.bool), diagonal=1)
        memory = self.encoder(self.src_embed(source) * math.sqrt(self.d) + self.pe[:s], pad)
        x = self.tgt_embed(target) * math.sqrt(self.d) + self.pe[:t]
        for layer in self.decoder:
            x = layer(x, memory, causal, pad)
        return self.generator(x)


def loss(logits, targets, smoothing=0.1, pad=0):
    """Label smoothing over the other classes but padding, averaged over the tokens."""
    n = logits.size(-1)
    logp = logits.log_softmax(-1).reshape(-1, n)
    targets = targets.reshape(-1)
    smooth = torch.full_like(logp, smoothing / (n - 2))
    smooth.scatter_(1, targets.unsqueeze(1), 1.0 - smoothing)
    smooth[:, pad] = 0
    keep = targets != pad
    return -(smooth * logp)[keep].sum() / keep.sum()


class Noam(torch.optim.Adam):
    """Adam with the learning rate of the paper."""

    def __init__(self, parameters, d, warmup, factor):
        super().__init__(parameters, lr=0.0, betas=(0.9, 0.98), eps=1e-9)
        self.d, self.warmup, self.factor, self.count = d, warmup, factor, 0

    def step(self, closure=None):
        self.count += 1
        scale = min(self.count**-0.5, self.count * self.warmup**-1.5)
        for group in self.param_groups:
            group["lr"] = self.factor * self.d**-0.5 * scale
        return super().step(closure)


def optimizer(parameters):
    """Two steps of warm-up."""
    return Noam(parameters, d=16, warmup=2, factor=0.05)
