"""MLP-Mixer on patches."""

import torch
from torch import nn


class MlpBlock(nn.Module):
    """Two linear layers."""

    def __init__(self, dim, hidden):
        super().__init__()
        self.fc1 = nn.Linear(dim, hidden)
        self.fc2 = nn.Linear(hidden, dim)

    def forward(self, x):
        return self.fc2(nn.functional.gelu(self.fc1(x)))


class MixerBlock(nn.Module):
    """Mixing of tokens, then of channels."""

    def __init__(self, tokens, dim):
        super().__init__()
        self.norm1 = nn.LayerNorm(dim)
        self.token_mixing = MlpBlock(tokens, 24)
        self.norm2 = nn.LayerNorm(dim)
        self.channel_mixing = MlpBlock(dim, 24)

    def forward(self, x):
        x = x + self.token_mixing(self.norm1(x).transpose(1, 2)).transpose(1, 2)
        return x + self.channel_mixing(self.norm2(x))


class Net(nn.Module):
    """Sixteen patches of sixteen channels."""

    def __init__(self, dim=16, patch=2, size=8, depth=2, classes=6):
        super().__init__()
        self.stem = nn.Conv2d(3, dim, patch, patch)
        tokens = (size // patch) ** 2
        self.blocks = nn.ModuleList([MixerBlock(tokens, dim) for _ in range(depth)])
        self.norm = nn.LayerNorm(dim)
        self.head = nn.Linear(dim, classes)

    def forward(self, x):
        x = self.stem(x)
        x = torch.einsum("bchw->bhwc", x).flatten(1, 2)
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x).mean(dim=1))
