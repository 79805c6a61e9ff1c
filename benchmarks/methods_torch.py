"""Training methods in PyTorch, driven by dualml and by hand; methods.py starts it on each rank."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import torch
from ranks import paced

from dualml.aggregation.buckets import layout
from dualml.aggregation.scheme import scheme
from dualml.aggregation.settings import Aggregation
from dualml.backend import Divisible, Overlapping, Recipe
from dualml.bench.timing import Times, take_turns
from dualml.errors import Unsupported
from dualml.methods.driven import Driven
from dualml.model import initial_weights, model
from dualml.optim import rule_from
from dualml.seeds import generator
from dualml_torch.backend import TorchBackend
from dualml_torch.methods import method
from dualml_torch.model import LOSSES, Network
from dualml_torch.optim import optimizer

WORDS, LENGTH, CLASSES, SAMPLES, BATCH, STEPS = 4000, 32, 6, 2048, 64, 8
ALONE = ("single", "recompute", "amp_bf16")
RANKS = ("ddp", "accelerate", "deepspeed_zero1", "deepspeed_zero2")


def recipe() -> Recipe:
    """The text classifier and Adam on random sentences."""
    spec = model("text_classifier", words=WORDS, length=LENGTH, classes=CLASSES)
    draw = generator(0, "benchmark", "methods")
    x = draw.integers(2, WORDS, (SAMPLES, LENGTH)).astype(np.int32)
    x[np.arange(LENGTH) >= draw.integers(3, LENGTH + 1, SAMPLES)[:, None]] = 0
    y = draw.integers(0, CLASSES, SAMPLES)
    rule, weights = rule_from({"name": "adam", "lr": 0.001}), initial_weights(spec, 0)
    return Recipe(spec=spec, weights=weights, rule=rule, x=x, y=y, updates=1, chunk=BATCH)


class Batches:
    """Random batches, each rank's part of them."""

    def __init__(self) -> None:
        self.draw, self.now = np.random.default_rng(0), 0

    def parts(self, ranks: int) -> list[Any]:
        self.now += 1
        return np.array_split(self.draw.integers(0, SAMPLES, BATCH), ranks)


def driven(training: Any, batches: Batches, ranks: int, read: Callable[[Any], Any]) -> None:
    """A stretch of updates as a trial makes it."""
    parts = [batches.parts(ranks) for _ in range(STEPS)]
    given = parts if ranks > 1 else [part for (part,) in parts]
    read(training.stretch(given, batches.now - STEPS + 1))


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

    def once(call: Callable[[], None]) -> float:
        import time

        begin = time.perf_counter()
        call()
        return (time.perf_counter() - begin) * 1e3 / STEPS

    return take_turns({name: partial(once, call) for name, call in calls.items()}, rounds)


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
