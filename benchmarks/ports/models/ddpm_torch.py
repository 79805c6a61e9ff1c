"""A small diffusion model: v-prediction, FiLM by the time, min-SNR weights, AdamW with warm-up and look-ahead."""

import math

import torch
from torch import nn
from torch.nn import functional as F


def time_embedding(t, size, longest=10000):
    """Cosines, then sines."""
    half = size // 2
    freqs = torch.exp(-math.log(longest) * torch.arange(half) / half)
    angle = t[:, None].float() * freqs[None]
    return torch.cat([angle.cos(), angle.sin()], dim=-1)


class ResBlock(nn.Module):
    """Norm, SiLU, convolution twice; the time scales and shifts between."""

    def __init__(self, inputs, outputs, time, groups=4):
        super().__init__()
        self.norm1 = nn.GroupNorm(groups, inputs)
        self.conv1 = nn.Conv2d(inputs, outputs, 3, padding=1)
        self.film = nn.Linear(time, 2 * outputs)
        self.norm2 = nn.GroupNorm(groups, outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, padding=1)
        self.skip = nn.Conv2d(inputs, outputs, 1) if inputs != outputs else nn.Identity()

    def forward(self, x, time):
        h = self.conv1(F.silu(self.norm1(x)))
        scale, shift = self.film(F.silu(time))[:, :, None, None].chunk(2, dim=1)
        h = self.norm2(h) * (1 + scale) + shift
        return self.skip(x) + self.conv2(F.silu(h))


class Net(nn.Module):
    """Takes clean pictures, noise and times; outputs the prediction, v and the signal-to-noise ratio."""

    def __init__(self, d=8, time=32, steps=40):
        super().__init__()
        betas = torch.linspace(0.001, 0.1, steps)
        self.register_buffer("alpha_bar", torch.cumprod(1 - betas, dim=0))
        self.time = nn.Sequential(nn.Linear(16, time), nn.SiLU(), nn.Linear(time, time))
        self.stem = nn.Conv2d(3, d, 3, padding=1)
        self.down = ResBlock(d, d, time)
        self.shrink = nn.Conv2d(d, 2 * d, 3, stride=2)
        self.middle = ResBlock(2 * d, 2 * d, time)
        self.up = ResBlock(3 * d, d, time)
        self.norm = nn.GroupNorm(4, d)
        self.out = nn.Conv2d(d, 3, 3, padding=1)

    def forward(self, clean, noise, t):
        bar = self.alpha_bar[t][:, None, None, None]
        x = bar.sqrt() * clean + (1 - bar).sqrt() * noise
        v = bar.sqrt() * noise - (1 - bar).sqrt() * clean
        time = self.time(time_embedding(t, 16))
        first = self.down(self.stem(x), time)
        h = self.shrink(F.pad(first, (0, 1, 0, 1)))
        h = self.middle(h, time)
        h = F.interpolate(h, scale_factor=2, mode="nearest")
        h = self.up(torch.cat([h, first], dim=1), time)
        h = self.out(F.silu(self.norm(h)))
        return h, v, (bar / (1 - bar)).flatten()


def loss(outputs, targets, gamma=5.0):
    """Squared error of v where the mask is one, weighted by the clipped ratio."""
    prediction, v, snr = outputs
    mask = targets[:, None].float()
    error = ((prediction - v) ** 2 * mask).sum((1, 2, 3)) / (v.shape[1] * mask.sum((1, 2, 3)))
    weight = snr.clamp(max=gamma) / (snr + 1)
    return (weight * error).mean()


class LookAheadAdamW(torch.optim.Optimizer):
    """AdamW with linear warm-up; every second step goes back towards the slow weights."""

    def __init__(self, params, lr=0.01, betas=(0.9, 0.95), eps=1e-6, weight_decay=0.0, warmup=3, every=2, alpha=0.4):
        super().__init__(params, {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay})
        self.warmup, self.every, self.alpha = warmup, every, alpha
        self.done = 0

    @torch.no_grad()
    def step(self, closure=None):
        self.done += 1
        warm = min(1.0, self.done / self.warmup)
        for group in self.param_groups:
            lr = group["lr"] * warm
            one, two = group["betas"]
            for p in group["params"]:
                if p.grad is None:
                    continue
                state = self.state[p]
                if not state:
                    state["m"] = torch.zeros_like(p)
                    state["v"] = torch.zeros_like(p)
                    state["slow"] = p.clone()
                p.mul_(1 - lr * group["weight_decay"])
                state["m"].lerp_(p.grad, 1 - one)
                state["v"].mul_(two).addcmul_(p.grad, p.grad, value=1 - two)
                mean = state["m"] / (1 - one**self.done)
                square = state["v"] / (1 - two**self.done)
                p.addcdiv_(mean, square.sqrt() + group["eps"], value=-lr)
                if self.done % self.every == 0:
                    state["slow"].lerp_(p, self.alpha)
                    p.copy_(state["slow"])


def optimizer(parameters):
    """Weights decay, biases and norms do not."""
    parameters = list(parameters)
    return LookAheadAdamW([
        {"params": [p for p in parameters if p.ndim > 1], "weight_decay": 0.2},
        {"params": [p for p in parameters if p.ndim <= 1], "weight_decay": 0.0},
    ])
