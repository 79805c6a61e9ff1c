"""A small Glow: squeeze, actnorm, invertible 1x1 convolutions by LU, affine couplings, a split with a learned prior."""

import math

import torch
from torch import nn
from torch.nn import functional as F


class ActNorm(nn.Module):
    """A scale and a shift of each channel."""

    def __init__(self, channels):
        super().__init__()
        self.shift = nn.Parameter(0.3 * torch.randn(1, channels, 1, 1))
        self.log_scale = nn.Parameter(0.2 * torch.randn(1, channels, 1, 1))

    def forward(self, x):
        pixels = x.shape[2] * x.shape[3]
        return (x + self.shift) * self.log_scale.exp(), pixels * self.log_scale.sum()


class Invertible(nn.Module):
    """A 1x1 convolution whose weight is P L (U + diag(s))."""

    def __init__(self, channels):
        super().__init__()
        weight = torch.linalg.qr(torch.randn(channels, channels)).Q + 0.1 * torch.randn(channels, channels)
        p, lower, upper = torch.linalg.lu(weight)
        s = upper.diagonal()
        self.register_buffer("p", p)
        self.register_buffer("sign", s.sign())
        self.lower = nn.Parameter(lower.tril(-1) + 0.1 * torch.randn(channels, channels).triu())
        self.upper = nn.Parameter(upper.triu(1) + 0.1 * torch.randn(channels, channels).tril())
        self.log_s = nn.Parameter(s.abs().log())

    def forward(self, x):
        lower = self.lower.tril(-1) + torch.eye(len(self.p))
        upper = self.upper.triu(1) + torch.diag(self.sign * self.log_s.exp())
        weight = self.p @ lower @ upper
        pixels = x.shape[2] * x.shape[3]
        return F.conv2d(x, weight[:, :, None, None]), pixels * self.log_s.sum()


class Coupling(nn.Module):
    """The second half is scaled and shifted by a network of the first."""

    def __init__(self, channels, hidden=12):
        super().__init__()
        self.net = nn.Sequential(
            nn.Conv2d(channels // 2, hidden, 3, padding=1), nn.ReLU(),
            nn.Conv2d(hidden, hidden, 1), nn.ReLU(),
            nn.Conv2d(hidden, channels, 3, padding=1),
        )
        self.gain = nn.Parameter(0.1 * torch.randn(channels, 1, 1))

    def forward(self, x):
        a, b = x.chunk(2, dim=1)
        h = self.net(a) * (3 * self.gain).exp()
        shift, raw = h[:, 0::2], h[:, 1::2]
        scale = torch.sigmoid(raw + 2)
        b = (b + shift) * scale
        return torch.cat([a, b], dim=1), scale.log().sum(dim=(1, 2, 3))


class Step(nn.Module):
    """Actnorm, 1x1 convolution, coupling."""

    def __init__(self, channels):
        super().__init__()
        self.norm = ActNorm(channels)
        self.mix = Invertible(channels)
        self.couple = Coupling(channels)

    def forward(self, x):
        x, first = self.norm(x)
        x, second = self.mix(x)
        x, third = self.couple(x)
        return x, first + second + third


class Net(nn.Module):
    """Outputs both latents, the split's prior and the log-determinant."""

    def __init__(self, channels=8):
        super().__init__()
        self.steps = nn.ModuleList([Step(channels), Step(channels)])
        self.prior = nn.Conv2d(channels // 2, channels, 3, padding=1)
        self.top = Step(channels // 2)

    def forward(self, x):
        x = F.pixel_unshuffle(x, 2)
        logdet = x.new_zeros(x.shape[0])
        for step in self.steps:
            x, more = step(x)
            logdet = logdet + more
        kept, out = x.chunk(2, dim=1)
        mean, log_std = self.prior(kept).chunk(2, dim=1)
        top, more = self.top(kept)
        return top, out, mean, log_std, logdet + more


def log_normal(z, mean, log_std):
    """Log-probability of each sample."""
    e = -0.5 * (math.log(2 * math.pi) + 2 * log_std + (z - mean) ** 2 * torch.exp(-2 * log_std))
    return e.flatten(1).sum(1)


def loss(outputs, targets):
    """Bits per dimension, each sample with its weight."""
    top, out, mean, log_std, logdet = outputs
    zero = torch.zeros_like(top)
    total = log_normal(top, zero, zero) + log_normal(out, mean, log_std) + logdet
    dims = top[0].numel() + out[0].numel()
    bits = -total / (math.log(2) * dims)
    weight = torch.softmax(targets, dim=0)
    return (bits * weight).sum()
