"""One Conformer block on frames of features, a class for every frame."""

import math

import torch
from torch import nn
from torch.nn import functional as F


def positions(t, d):
    """Sinusoids of the distances t - 1 ... 1 - t."""
    distance = torch.arange(t - 1, -t, -1, dtype=torch.float32)
    rate = torch.exp(torch.arange(0, d, 2).float() * (-math.log(100.0) / d))
    angle = distance[:, None] * rate
    return torch.stack([angle.sin(), angle.cos()], dim=-1).flatten(1)


class FeedForward(nn.Module):
    def __init__(self, d, hidden):
        super().__init__()
        self.norm = nn.LayerNorm(d)
        self.up = nn.Linear(d, hidden)
        self.down = nn.Linear(hidden, d)

    def forward(self, x):
        return self.down(F.silu(self.up(self.norm(x))))


class RelativeAttention(nn.Module):
    """Attention with the relative positions of Transformer-XL."""

    def __init__(self, d, heads):
        super().__init__()
        self.heads = heads
        self.size = d // heads
        self.query = nn.Linear(d, d)
        self.key = nn.Linear(d, d, bias=False)
        self.value = nn.Linear(d, d)
        self.pos = nn.Linear(d, d, bias=False)
        self.out = nn.Linear(d, d)
        self.content_bias = nn.Parameter(torch.empty(heads, self.size))
        self.position_bias = nn.Parameter(torch.empty(heads, self.size))
        nn.init.normal_(self.content_bias, std=0.5)
        nn.init.normal_(self.position_bias, std=0.5)
        for linear in (self.query, self.key, self.value, self.pos):
            nn.init.xavier_uniform_(linear.weight)

    @staticmethod
    def shift(x):
        b, h, t, n = x.shape
        x = F.pad(x, (1, 0)).view(b, h, n + 1, t)
        return x[:, :, 1:].reshape(b, h, t, n)[..., :t]

    def forward(self, x):
        b, t, d = x.shape
        q = self.query(x).view(b, t, self.heads, self.size)
        k = self.key(x).view(b, t, self.heads, self.size).transpose(1, 2)
        v = self.value(x).view(b, t, self.heads, self.size).transpose(1, 2)
        p = self.pos(positions(t, d)).view(-1, self.heads, self.size).transpose(0, 1)
        content = (q + self.content_bias).transpose(1, 2) @ k.transpose(-2, -1)
        position = (q + self.position_bias).transpose(1, 2) @ p.transpose(-2, -1)
        scores = (content + self.shift(position)) / math.sqrt(self.size)
        mixed = scores.softmax(-1) @ v
        return self.out(mixed.transpose(1, 2).flatten(2))


class ConvModule(nn.Module):
    """Pointwise, GLU, depthwise, batch norm, swish, pointwise."""

    def __init__(self, d, kernel):
        super().__init__()
        self.norm = nn.LayerNorm(d)
        self.expand = nn.Conv1d(d, 2 * d, 1)
        self.depthwise = nn.Conv1d(d, d, kernel, padding=kernel // 2, groups=d, bias=False)
        self.batch_norm = nn.BatchNorm1d(d, eps=1e-3)
        self.project = nn.Conv1d(d, d, 1)

    def forward(self, x):
        y = self.norm(x).transpose(1, 2)
        y = F.glu(self.expand(y), dim=1)
        y = F.silu(self.batch_norm(self.depthwise(y)))
        return self.project(y).transpose(1, 2)


class Block(nn.Module):
    def __init__(self, d, heads, hidden, kernel):
        super().__init__()
        self.ff1 = FeedForward(d, hidden)
        self.attn_norm = nn.LayerNorm(d)
        self.attn = RelativeAttention(d, heads)
        self.conv = ConvModule(d, kernel)
        self.ff2 = FeedForward(d, hidden)
        self.norm = nn.LayerNorm(d)

    def forward(self, x):
        x = x + 0.5 * self.ff1(x)
        x = x + self.attn(self.attn_norm(x))
        x = x + self.conv(x)
        x = x + 0.5 * self.ff2(x)
        return self.norm(x)


class Net(nn.Module):
    """Logits [frames of all sequences, classes]."""

    def __init__(self, features=10, d=12, heads=2, classes=5):
        super().__init__()
        self.input = nn.Linear(features, d)
        self.block = Block(d, heads, 2 * d, 5)
        self.head = nn.Linear(d, classes)

    def forward(self, x):
        return self.head(self.block(self.input(x))).flatten(0, 1)
