"""Training loops in plain PyTorch, as an expert and as a course would write them.

Nothing of dualml is imported, so that time and memory of these loops are the framework's alone.
"""

from __future__ import annotations

import time

import torch
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset

BATCH = 64


def lenet() -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(1, 6, 5, padding=2),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(6, 16, 5),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(400, 120),
        nn.ReLU(),
        nn.Linear(120, 10),
    )


def native(arm: str, lr: float, net: nn.Module, **how: bool) -> torch.optim.Optimizer:
    make = {"sgd": torch.optim.SGD, "adam": torch.optim.Adam}[arm]
    return make(net.parameters(), lr=lr, **how)


class HandWritten:
    """The loop of an expert: data in memory, one gather per batch, no synchronisation per step.

    Args:
        net: the model; a new LeNet unless given.
        optimizer: ``fused`` or ``foreach`` of `torch.optim`.
        memory: ``contiguous_format`` or ``channels_last`` for images and kernels.
        compiled: mode of `torch.compile` for model and loss; "" is eager.
    """

    def __init__(
        self,
        x: torch.Tensor,
        y: torch.Tensor,
        arm: str,
        lr: float,
        steps: int,
        optimizer: str = "fused",
        memory: str = "contiguous_format",
        compiled: str = "",
        net: nn.Module | None = None,
        batch: int = BATCH,
    ) -> None:
        self.x, self.y, self.steps, self.batch = x, y, steps, batch
        self.net = (net or lenet()).to(memory_format=getattr(torch, memory))
        self.optimizer = native(arm, lr, self.net, **{optimizer: True})
        self.order, self.at = torch.randperm(len(y)), 0
        self.loss = torch.compile(self.mean, mode=compiled) if compiled else self.mean

    def mean(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return functional.cross_entropy(self.net(x), y.flatten())

    def __call__(self) -> float:
        # The trial's choice of deterministic algorithms is its own cost, not that of this loop.
        torch.use_deterministic_algorithms(False)
        begin = time.perf_counter()
        losses = []
        for _ in range(self.steps):
            if self.at + self.batch > len(self.order):
                self.order, self.at = torch.randperm(len(self.y)), 0
            batch = self.order[self.at : self.at + self.batch]
            self.at += self.batch
            loss = self.loss(self.x.index_select(0, batch), self.y.index_select(0, batch))
            self.optimizer.zero_grad(set_to_none=True)
            loss.backward()
            self.optimizer.step()
            losses.append(loss.detach())
        torch.stack(losses).tolist()
        spent = time.perf_counter() - begin
        torch.use_deterministic_algorithms(True)
        return spent * 1e3 / self.steps


class Course:
    """The loop of a course: a `DataLoader` that collates samples, and the loss printed each
    step."""

    def __init__(self, x: torch.Tensor, y: torch.Tensor, arm: str, lr: float, steps: int) -> None:
        self.loader = DataLoader(TensorDataset(x, y), batch_size=BATCH, shuffle=True)
        self.batches = iter(self.loader)
        self.steps = steps
        self.net = lenet()
        self.optimizer = native(arm, lr, self.net)

    def __call__(self) -> float:
        torch.use_deterministic_algorithms(False)
        begin = time.perf_counter()
        losses = []
        for _ in range(self.steps):
            batch = next(self.batches, None)
            if batch is None:
                self.batches = iter(self.loader)
                batch = next(self.batches)
            x, y = batch
            self.optimizer.zero_grad()
            loss = functional.cross_entropy(self.net(x), y)
            loss.backward()
            self.optimizer.step()
            losses.append(loss.item())
        spent = time.perf_counter() - begin
        torch.use_deterministic_algorithms(True)
        return spent * 1e3 / self.steps
