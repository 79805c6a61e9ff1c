"""The PyTorch training loop of a trial against loops written by hand.

    python benchmarks/training_torch.py [--quick]        prints rows as JSON
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from pathlib import Path

import torch
from timing import Row, fastest, row, take_turns
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset
from workload import ARMS, BATCH, OurLoop, dataset

from dualml.backend import backends
from dualml.machine import default_threads

SECTION = "training loop, torch"


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
    """The loop an expert writes: data in memory, one gather a batch, no synchronisation a step.

    Args:
        how: ``fused=True`` or ``foreach=True`` of `torch.optim`.
    """

    def __init__(
        self, x: torch.Tensor, y: torch.Tensor, arm: str, lr: float, steps: int, **how: bool
    ) -> None:
        self.x, self.y, self.steps = x, y, steps
        self.net = lenet()
        self.optimizer = native(arm, lr, self.net, **how)
        self.order, self.at = torch.randperm(len(y)), 0

    def __call__(self) -> float:
        # The trial's choice of deterministic algorithms is its own cost, not that of this loop.
        torch.use_deterministic_algorithms(False)
        begin = time.perf_counter()
        losses = []
        for _ in range(self.steps):
            if self.at + BATCH > len(self.order):
                self.order, self.at = torch.randperm(len(self.y)), 0
            batch = self.order[self.at : self.at + BATCH]
            self.at += BATCH
            output = self.net(self.x.index_select(0, batch))
            loss = functional.cross_entropy(output, self.y.index_select(0, batch))
            self.optimizer.zero_grad(set_to_none=True)
            loss.backward()
            self.optimizer.step()
            losses.append(loss.detach())
        torch.stack(losses).tolist()
        spent = time.perf_counter() - begin
        torch.use_deterministic_algorithms(True)
        return spent * 1e3 / self.steps


class Course:
    """The loop of a course: a `DataLoader` that collates samples, and a loss printed each step."""

    def __init__(
        self, x: torch.Tensor, y: torch.Tensor, arm: str, lr: float, steps: int
    ) -> None:
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


def rows(rounds: int, steps: int) -> list[Row]:
    backend = backends()["torch"].create("cpu", default_threads())
    data = dataset()
    found = []
    for arm in ARMS:
        with tempfile.TemporaryDirectory() as folder:
            ours = OurLoop(backend, data, arm, Path(folder), steps)
            given = torch.from_numpy(ours.x), torch.from_numpy(ours.y), arm, ours.rule.lr, steps
            by_hand = {
                "fused": HandWritten(*given, fused=True),
                "foreach": HandWritten(*given, foreach=True),
            }
            times = take_turns({"ours": ours, **by_hand, "course": Course(*given)}, rounds)
        best = fastest(times, list(by_hand))
        found += [
            row(SECTION, arm, f"hand-written, {best}", times, "ours", best, target=1.05),
            row(SECTION, arm, "course script (DataLoader, loss.item())", times, "ours", "course"),
        ]
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer rounds")
    quick = parser.parse_args().quick
    made = rows(rounds=7 if quick else 25, steps=50)
    print(json.dumps([r.describe() for r in made]))


if __name__ == "__main__":
    main()
