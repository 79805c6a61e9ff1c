"""A causal transformer with ALiBi, grouped-query heads and tied embeddings; padding stands on the left."""

import math

import torch
from torch import nn
from torch.nn import functional as F


class Attention(nn.Module):
    """Causal attention; each key/value head serves several query heads."""

    def __init__(self, d, heads, groups):
        super().__init__()
        self.heads, self.groups, self.size = heads, groups, d // heads
        self.q = nn.Linear(d, d, bias=False)
        self.k = nn.Linear(d, groups * self.size, bias=False)
        self.v = nn.Linear(d, groups * self.size, bias=False)
        self.o = nn.Linear(d, d)
        slopes = torch.tensor([2.0 ** (-8 * (i + 1) / heads) for i in range(heads)])
        self.register_buffer("slopes", slopes, persistent=False)
        for linear in (self.q, self.k, self.v):
            nn.init.xavier_normal_(linear.weight)

    def forward(self, x, valid):
        b, t, _ = x.shape
        q = self.q(x).view(b, t, self.heads, self.size).transpose(1, 2)
        k = self.k(x).view(b, t, self.groups, self.size).transpose(1, 2)
        v = self.v(x).view(b, t, self.groups, self.size).transpose(1, 2)
        place = torch.arange(t)
        distance = place[:, None] - place[None, :]
        bias = -self.slopes[:, None, None] * distance
        allowed = (distance >= 0) & (valid[:, None, None, :] | (distance == 0))
        bias = bias.masked_fill(~allowed, float("-inf"))
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=bias, enable_gqa=True)
        return self.o(y.transpose(1, 2).reshape(b, t, -1))


class Block(nn.Module):
    def __init__(self, d, heads, groups):
        super().__init__()
        self.norm1 = nn.LayerNorm(d)
        self.attn = Attention(d, heads, groups)
        self.norm2 = nn.LayerNorm(d)
        self.mlp = nn.Sequential(nn.Linear(d, 2 * d), nn.GELU(), nn.Linear(2 * d, d))

    def forward(self, x, valid):
        x = x + self.attn(self.norm1(x), valid)
        return x + self.mlp(self.norm2(x))


class Net(nn.Module):
    """Outputs the logits and the mask of the steps that are no padding."""

    def __init__(self, vocabulary=12, d=16, heads=4, groups=2, depth=2):
        super().__init__()
        self.d = d
        self.embed = nn.Embedding(vocabulary, d)
        nn.init.normal_(self.embed.weight, std=d**-0.5)
        self.blocks = nn.ModuleList([Block(d, heads, groups) for _ in range(depth)])
        self.norm = nn.LayerNorm(d)

    def forward(self, tokens, padding):
        t = tokens.shape[1]
        valid = torch.arange(t) >= padding[:, None]
        x = self.embed(tokens) * math.sqrt(self.d)
        for block in self.blocks:
            x = block(x, valid)
        return F.linear(self.norm(x), self.embed.weight), valid.float()


def loss(outputs, targets):
    """Cross entropy with smoothed labels, a mean over the valid steps."""
    logits, valid = outputs
    each = F.cross_entropy(logits.transpose(1, 2), targets, reduction="none", label_smoothing=0.1)
    return (each * valid).sum() / valid.sum()


class WarmAdamW(torch.optim.AdamW):
    """AdamW whose learning rates grow linearly at first."""

    def __init__(self, groups, warm, **options):
        super().__init__(groups, **options)
        self.warm, self.count = warm, 0
        self.rates = [g["lr"] for g in self.param_groups]

    def step(self, closure=None):
        self.count += 1
        for group, rate in zip(self.param_groups, self.rates):
            group["lr"] = rate * min(1.0, self.count / self.warm)
        return super().step(closure)


def optimizer(parameters):
    parameters = list(parameters)
    groups = [
        {"params": [p for p in parameters if p.dim() > 1], "weight_decay": 0.5},
        {"params": [p for p in parameters if p.dim() <= 1], "weight_decay": 0.0},
    ]
    return WarmAdamW(groups, warm=4, lr=0.01, betas=(0.9, 0.95), eps=1e-5)
