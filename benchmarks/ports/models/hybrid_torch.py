"""Convolutions, squeeze-and-excitation, then a transformer over the positions."""

import torch
from torch import nn
from torch.nn import functional as F


class SqueezeExcite(nn.Module):
    """Channels scaled by a network of their means."""

    def __init__(self, channels, reduced):
        super().__init__()
        self.fc1 = nn.Conv2d(channels, reduced, 1)
        self.fc2 = nn.Conv2d(reduced, channels, 1)

    def forward(self, x):
        s = F.adaptive_avg_pool2d(x, 1)
        return x * torch.sigmoid(self.fc2(F.relu(self.fc1(s))))


class Transformer(nn.Module):
    """Pre-norm attention and network over [B, N, C]."""

    def __init__(self, d, heads):
        super().__init__()
        self.heads = heads
        self.norm1 = nn.LayerNorm(d)
        self.qkv = nn.Linear(d, 3 * d, bias=False)
        self.proj = nn.Linear(d, d)
        self.norm2 = nn.LayerNorm(d)
        self.fc1 = nn.Linear(d, 2 * d)
        self.fc2 = nn.Linear(2 * d, d)

    def forward(self, x):
        b, n, d = x.shape
        qkv = self.qkv(self.norm1(x)).reshape(b, n, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(*qkv).transpose(1, 2).reshape(b, n, d)
        x = x + self.proj(y)
        return x + self.fc2(F.silu(self.fc1(self.norm2(x))))


class Net(nn.Module):
    """Input [B, 3, 10, 10]."""

    def __init__(self, c=8, heads=2, classes=4):
        super().__init__()
        self.stem = nn.Conv2d(3, c, 3, stride=2, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(c)
        self.dw = nn.Conv2d(c, c, 3, padding=1, groups=c, bias=False)
        self.bn2 = nn.BatchNorm2d(c)
        self.se = SqueezeExcite(c, 4)
        self.transformer = Transformer(c, heads)
        self.fuse = nn.Conv2d(2 * c, c, 1)
        self.head = nn.Linear(c, classes)

    def forward(self, x):
        x = F.silu(self.bn1(self.stem(x)))
        x = self.se(F.silu(self.bn2(self.dw(x))))
        b, c, h, w = x.shape
        y = self.transformer(x.flatten(2).transpose(1, 2))
        y = y.transpose(1, 2).reshape(b, c, h, w)
        x = F.silu(self.fuse(torch.cat([x, y], dim=1)))
        return self.head(x.mean((2, 3)))


def optimizer(parameters):
    """RMSprop with momentum, as MobileNet is trained."""
    return torch.optim.RMSprop(parameters, lr=0.01, alpha=0.9, eps=1e-3, momentum=0.9)
