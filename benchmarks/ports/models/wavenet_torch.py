"""A small WaveNet: gated, dilated, causal convolutions with a speaker's condition."""

import math

import torch
from torch import nn
from torch.nn import functional as F

WARM = 6


class Layer(nn.Module):
    """One gated convolution with its residual and its skip output."""

    def __init__(self, channels, condition, dilation, last=False):
        super().__init__()
        self.pad = dilation
        self.conv = nn.Conv1d(channels, 2 * channels, 2, dilation=dilation)
        self.cond = nn.Linear(condition, 2 * channels, bias=False)
        self.skip = nn.Conv1d(channels, channels, 1)
        self.res = None if last else nn.Conv1d(channels, channels, 1)

    def forward(self, x, speaker):
        h = self.conv(F.pad(x, (self.pad, 0))) + self.cond(speaker).unsqueeze(-1)
        filtered, gate = h.chunk(2, dim=1)
        z = torch.tanh(filtered) * torch.sigmoid(gate)
        skip = self.skip(z)
        if self.res is not None:
            x = (x + self.res(z)) * math.sqrt(0.5)
        return x, skip


class Net(nn.Module):
    """Logits of the next sample at every step."""

    def __init__(self, classes=16, speakers=3, channels=8, condition=4, stacks=2, depth=3):
        super().__init__()
        self.embed = nn.Embedding(classes, channels)
        self.speaker = nn.Embedding(speakers, condition)
        dilations = [2**i for _ in range(stacks) for i in range(depth)]
        self.layers = nn.ModuleList(
            [Layer(channels, condition, d, n == len(dilations) - 1) for n, d in enumerate(dilations)]
        )
        self.out1 = nn.Conv1d(channels, channels, 1)
        self.out2 = nn.Conv1d(channels, classes, 1)
        nn.init.kaiming_normal_(self.out1.weight, nonlinearity="relu")
        nn.init.kaiming_normal_(self.out2.weight, nonlinearity="relu")

    def forward(self, samples, speaker):
        x = self.embed(samples).transpose(1, 2)
        c = self.speaker(speaker)
        skips = 0
        for layer in self.layers:
            x, skip = layer(x, c)
            skips = skips + skip
        skips = skips * math.sqrt(1.0 / len(self.layers))
        return self.out2(F.relu(self.out1(F.relu(skips))))


def loss(outputs, targets):
    """Cross entropy without the first samples, which see little of the past."""
    return F.cross_entropy(outputs[:, :, WARM:], targets[:, WARM:])
