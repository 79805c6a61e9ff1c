"""Training methods in PyTorch, driven by dualml and by hand; methods.py starts it on each rank."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from methods_task import STEPS, Batches, driven, milliseconds, own, recipe
from ranks import paced

from dualml.aggregation.buckets import layout
from dualml.aggregation.scheme import scheme
from dualml.aggregation.settings import Aggregation
from dualml.backend import Divisible, Overlapping
from dualml.bench.timing import Times, take_turns
from dualml.errors import Unsupported
from dualml.methods.driven import Driven
from dualml_torch.backend import TorchBackend
from dualml_torch.methods import method
from dualml_torch.model import LOSSES, Network
from dualml_torch.optim import optimizer

ALONE = ("single", "recompute", "amp_bf16")
RANKS = ("ddp", "accelerate", "deepspeed_zero1", "deepspeed_zero2")


class ByHand:
    """The same loop in a script: model, optimizer and data made here, one file's lines."""

    def __init__(self, name: str) -> None:
        its = recipe()
        self.model = Network(its.spec).train()
        self.model.load(its.weights)
        self.x, self.y = torch.from_numpy(its.x), torch.from_numpy(its.y)
        self.optimizer = optimizer(its.rule, self.model.parameters())
        self.loss, self.name = LOSSES[its.loss], name
        self.batches = Batches()

    def forward(self, x: Any) -> Any:
        if self.name != "recompute":
            return self.model(x)
        from torch.utils.checkpoint import checkpoint

        for block in self.model.blocks(x):
            x = checkpoint(block, x, use_reentrant=False)
        return x

    def __call__(self) -> None:
        losses = []
        for _ in range(STEPS):
            index = torch.from_numpy(self.batches.parts(1)[0])
            x, y = self.x[index], self.y[index]
            self.optimizer.zero_grad()
            with torch.autocast("cpu", torch.bfloat16, enabled=self.name == "amp_bf16"):
                loss = self.loss(self.forward(x), y)
            loss.backward()
            self.optimizer.step()
            losses.append(loss.detach())
        torch.stack(losses).tolist()


def alone(rounds: int) -> Times:
    """Milliseconds of an update in one process."""
    backend, calls = TorchBackend("cpu", 1), dict[str, Callable[[], None]]()
    for name in ALONE:
        made = method(name, recipe(), torch.device("cpu"), None)
        calls[name] = partial(driven, made, Batches(), 1, backend.read)
        calls[f"{name} by hand"] = ByHand(name)

    return milliseconds(calls | own(backend), rounds)


def train(comm: Any, argument: dict[str, Any]) -> Times:
    """Milliseconds of an update on each rank, by variant."""
    backend = TorchBackend("cpu", 1)
    calls = {}
    for name, settings in (("ours", Aggregation()), ("overlap", Aggregation(overlap=True))):
        training = backend.training(recipe())
        buckets = layout(recipe().spec.parameters(), settings.bucket_bytes)
        pieces = (
            training.ability(Overlapping).overlapping(buckets, comm)
            if settings.overlap
            else training.ability(Divisible).pieces(buckets)
        )
        ours = scheme(settings)(backend, training, pieces, comm, settings)
        calls[name] = partial(driven, ours, Batches(), comm.size, ours.read)
    for name in RANKS:
        try:
            made = Driven(backend, method(name, recipe(), torch.device("cpu"), comm), comm)
        except Unsupported:
            continue
        calls[name] = partial(driven, made, Batches(), comm.size, made.read)
    times = take_turns({n: paced(comm, call) for n, call in calls.items()}, argument["rounds"])
    return {name: [t / STEPS for t in found] for name, found in times.items()}
