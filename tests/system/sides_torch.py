"""Models for comparisons of two sides in PyTorch."""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import nn
from torch.nn import functional


class Block(nn.Module):
    """A residual block whose norm has an epsilon of its own."""

    def __init__(self, eps: float) -> None:
        super().__init__()
        self.fc, self.norm, self.act = nn.Linear(8, 8), nn.LayerNorm(8, eps=eps), nn.GELU()

    def forward(self, x: Any) -> Any:
        return x + self.act(self.norm(self.fc(x)))


class Net(nn.Module):
    """Two blocks and a head, with Dropout between them."""

    eps: ClassVar[float] = 1e-5

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList([Block(self.eps), Block(self.eps)])
        self.drop, self.head = nn.Dropout(0.25), nn.Linear(8, 4)

    def forward(self, x: Any) -> Any:
        for block in self.blocks:
            x = block(x)
        return self.head(self.drop(x))


class Eps(Net):
    """A `Net` whose layer norms add an epsilon of 0.01 instead of 1e-5."""

    eps = 1e-2


class Unactivated(Net):
    """A `Net` that leaves out its last activation, which is wrong in any precision."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks[1].act = nn.Identity()


class Halving(nn.Module):
    """A layer that a compiler translates into something else."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(8, 8)

    def forward(self, x: Any) -> Any:
        y = self.fc(x)
        return y / 2 if torch.compiler.is_compiling() else y


class Miscompiled(nn.Module):
    """A model with such a layer in it."""

    def __init__(self) -> None:
        super().__init__()
        self.scale, self.head = Halving(), nn.Linear(8, 4)

    def forward(self, x: Any) -> Any:
        return self.head(self.scale(x))


def make_cell() -> Any:
    """Return a model of the other framework, which the imports of this file do not show."""
    import importlib

    return importlib.import_module("sides_ms").Plain()


class Plain(nn.Module):
    """The counterpart of MindSpore's."""

    def __init__(self) -> None:
        super().__init__()
        self.fc, self.norm, self.head = nn.Linear(8, 8), nn.LayerNorm(8), nn.Linear(8, 4)

    def forward(self, x: Any) -> Any:
        return self.head(torch.relu(self.norm(self.fc(x))))


class Attention(nn.Module):
    """Causal attention of two heads over a sequence, in one call of the framework."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv, self.head = nn.Linear(8, 24), nn.Linear(8, 4)

    def mix(self, q: Any, k: Any, v: Any) -> Any:
        return functional.scaled_dot_product_attention(q, k, v, is_causal=True)

    def forward(self, x: Any) -> Any:
        q, k, v = self.qkv(x).view(len(x), 3, 2, 4).permute(1, 2, 0, 3)[:, None]
        return self.head(self.mix(q, k, v)[0].transpose(0, 1).flatten(1))


class WrittenOut(Attention):
    """An `Attention` in the calls that the fused one combines."""

    scale: ClassVar[float] = 0.5
    looks_back: ClassVar[bool] = True

    def mix(self, q: Any, k: Any, v: Any) -> Any:
        scores = q @ k.transpose(-2, -1) * self.scale
        if self.looks_back:
            hidden = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1)
            scores = scores.masked_fill(hidden, float("-inf"))
        return torch.softmax(scores, -1) @ v


class WrongScale(WrittenOut):
    """A `WrittenOut` whose scores are scaled by another number."""

    scale = 0.3


class AllKeys(WrittenOut):
    """A `WrittenOut` whose queries attend to later keys, too."""

    looks_back = False
