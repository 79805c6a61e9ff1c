"""Models for comparisons block by block, in PyTorch."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn


class Layer(nn.Module):
    """A residual block with a norm."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.fc = nn.LayerNorm(8), nn.Linear(8, 8)

    def forward(self, x: Any, table: Any) -> Any:
        return x + torch.tanh(self.fc(self.norm(x))) * table


class Net(nn.Module):
    """An embedding, two blocks that take a table, and a head."""

    scale = 1.0

    def __init__(self) -> None:
        super().__init__()
        self.emb = nn.Embedding(10, 8)
        self.layers = nn.ModuleList(Layer() for _ in range(2))
        self.register_buffer("table", torch.linspace(0.5, 1.5, 8), persistent=False)
        self.head = nn.Linear(8, 10)

    def forward(self, tokens: Any) -> Any:
        x = self.emb(tokens) * self.scale
        for layer in self.layers:
            x = layer(x, table=self.table)
        return self.head(x)


class Scaled(Net):
    """A `Net` that scales what the embedding returns."""

    scale = 1.5


class Tied(Net):
    """A `Net` whose head has the weights of the embedding."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(8, 10, bias=False)
        self.head.weight = self.emb.weight


class Unbiased(Net):
    """A `Net` whose head has no bias."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(8, 10, bias=False)


class DroppingLayer(Layer):
    """A block with Dropout."""

    def forward(self, x: Any, table: Any) -> Any:
        return super().forward(nn.functional.dropout(x, 0.25, self.training), table)


class Dropping(Net):
    """A `Net` with Dropout inside of its blocks and behind them."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(DroppingLayer() for _ in range(2))
        self.drop = nn.Dropout(0.5)

    def forward(self, tokens: Any) -> Any:
        x = self.emb(tokens)
        for layer in self.layers:
            x = self.drop(layer(x, self.table))
        return self.head(x)


class Borrowing(Net):
    """A `Net` that uses the weights of its embedding itself."""

    def forward(self, tokens: Any) -> Any:
        return super().forward(tokens) + self.emb.weight.sum()


def make_adam(parameters: Any) -> torch.optim.Optimizer:
    """Make PyTorch's Adam."""
    return torch.optim.Adam(parameters, lr=1e-3)
