"""PyTorch models that are compared with those of ``ports_ms.py``."""

from __future__ import annotations

import os
import time

import torch
from torch import nn


class Mixed(nn.Module):
    """Convolution, normalisation, embedding and recurrence in one."""

    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2)
        )
        self.embed = nn.Embedding(10, 6)
        self.lstm = nn.LSTM(6, 5, batch_first=True)
        self.norm = nn.LayerNorm(21)
        self.act = nn.GELU()
        self.fc = nn.Linear(21, 3)

    def forward(self, image: torch.Tensor, tokens: torch.Tensor) -> torch.Tensor:
        a = self.features(image).flatten(1)
        b, _ = self.lstm(self.embed(tokens))
        return self.fc(self.act(self.norm(torch.cat([a, b[:, -1]], 1))))


class Image(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv, self.up = nn.Conv2d(1, 4, 3, padding=1), nn.Upsample(scale_factor=2)
        self.fc = nn.Linear(4, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = nn.functional.avg_pool2d(self.up(self.conv(x)), 2)
        return self.fc(y.tanh().mean((2, 3)))


class Small(nn.Module):
    def __init__(self, drop: float = 0.0) -> None:
        super().__init__()
        self.a, self.drop, self.b = nn.Linear(4, 8), nn.Dropout(drop), nn.Linear(8, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.b(self.drop(torch.tanh(self.a(x))))


def dropping() -> nn.Module:
    return Small(0.5)


class Attentive(nn.Module):
    """One matrix for queries, keys and values, and Dropout inside of a fused kernel."""

    def __init__(self) -> None:
        super().__init__()
        self.attn = nn.MultiheadAttention(16, 4, batch_first=True, dropout=0.1)
        self.fc = nn.Linear(16, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.fc(self.attn(x, x, x, need_weights=False)[0] + x)


class Gated(nn.Module):
    """Two matrices of one shape that only the forward pass tells apart."""

    def __init__(self) -> None:
        super().__init__()
        self.gate, self.up = nn.Linear(16, 32, bias=False), nn.Linear(16, 32, bias=False)
        self.down = nn.Linear(32, 5, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down(nn.functional.silu(self.gate(x)) * self.up(x))


class Tanh(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(y := torch.tanh(x))
        return y

    @staticmethod
    def backward(ctx, dy):
        (y,) = ctx.saved_tensors
        return dy * (1 - y * y)


class Branching(Small):
    """Control flow on values, a loop, and a function with a gradient of its own."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.a(x)
        for row in range(len(x)):
            y = y * (2 if float(x[row].detach().sum()) > 0 else 0.5)
        return self.b(Tanh.apply(y))


class Dying(Small):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        os._exit(3)


class Huge(Small):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x) + torch.empty(10**14)[:2]


class Noisy(Small):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = super().forward(x)
        return y + torch.randn_like(y)


def broken() -> nn.Module:
    return nn.Linear(4, "eight")


def slow() -> nn.Module:
    time.sleep(60)
    return Small()


def adam(parameters: list[nn.Parameter]) -> torch.optim.Optimizer:
    return torch.optim.Adam(parameters, lr=1e-2, eps=1e-3)


def descent(parameters: list[nn.Parameter]) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=0.1)


def squares(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    return ((outputs - targets) ** 2).mean()
