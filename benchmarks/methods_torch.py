"""Training methods in PyTorch, called by dualml and by hand; methods.py starts it on each rank."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

import torch
from methods_task import (
    SHARED_STEPS,
    STEPS,
    Batches,
    milliseconds,
    precision_variants,
    recipe,
    run_updates,
    steps,
)
from ranks import paced

from dualml.backend import CommOverlap, GradientAccess
from dualml.common.errors import Unsupported
from dualml.experiment.methods.engine import EngineDataParallel, MethodTraining
from dualml.interface.bench.timing import Times, time_interleaved
from dualml.parallel.aggregation.buckets import bucket_layout
from dualml.parallel.aggregation.scheme import parallel_trainer_class
from dualml.parallel.aggregation.settings import Aggregation
from dualml_torch.algorithms.model import LOSSES, Network
from dualml_torch.algorithms.optim import optimizer
from dualml_torch.backend import TorchBackend
from dualml_torch.experiment.methods import make_method

ALONE = ("single", "recompute", "amp_bf16")
#: Methods whose modules are complete loops of a script and are used unchanged.
FILES = ("amp_fp16", "accelerate")
ENGINES = ("ddp", "accelerate", "deepspeed_zero1", "deepspeed_zero2")
RANKS = ("accumulate", "zero_optimizer", "fsdp", *ENGINES)


class ByHand:
    """Train the task in a script of a few lines, with a model, an optimizer and data of its own."""

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

        here = self.model.padding_mask(x)
        for some in self.model.spec.blocks():
            x = checkpoint(self.block, x, here, some, use_reentrant=False)
        return x

    def block(self, x: Any, here: Any, some: slice) -> Any:
        *_, (_, after) = self.model.walk((x,), (), here, some)
        return after[-1]

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


class MethodLoop:
    """The module of a method in the loop of a script, without anything of dualml's around it."""

    def __init__(self, name: str, comm: Any = None) -> None:
        its = recipe()
        self.method = make_method(name, its, torch.device("cpu"), comm).method
        self.x, self.y = torch.from_numpy(its.x), torch.from_numpy(its.y)
        self.batches = Batches()
        self.rank, self.ranks = (0, 1) if comm is None else (comm.rank, comm.size)

    def __call__(self) -> None:
        losses = []
        for _ in range(steps(self.ranks)):
            index = torch.from_numpy(self.batches.parts(self.ranks)[self.rank])
            losses.append(self.method.step((self.x[index],), self.y[index]))
        torch.stack(losses).tolist()


def installed_methods(names: Sequence[str], comm: Any = None) -> dict[str, MethodTraining]:
    """Return the methods whose engine is installed, by name."""
    made = {}
    for name in names:
        with suppress(Unsupported):
            made[name] = make_method(name, recipe(), torch.device("cpu"), comm)
    return made


def time_single_process(rounds: int) -> Times:
    """Return the milliseconds of an update in one process."""
    backend, calls = TorchBackend("cpu", 1), dict[str, Callable[[], None]]()
    for name in ALONE:
        made = make_method(name, recipe(), torch.device("cpu"), None)
        calls[name] = partial(run_updates, made, Batches(), 1, backend.materialize_losses)
        calls[f"{name} by hand"] = ByHand(name)
    for name, made in installed_methods(FILES).items():
        calls[name] = partial(run_updates, made, Batches(), 1, backend.materialize_losses)
        calls[f"{name} by hand"] = MethodLoop(name)

    return milliseconds(calls | precision_variants(backend), rounds)


def train(comm: Any, argument: dict[str, Any]) -> Times:
    """Return the milliseconds of an update on each rank: of our methods and of engines, or
    (``by_hand``) of methods and their modules. These are separate runs, because each leaves threads
    that continue for a while."""
    backend = TorchBackend("cpu", 1)
    calls = {} if argument["by_hand"] else reduction_variants(comm, backend)
    for name, training in installed_methods(
        RANKS if argument["by_hand"] else ENGINES, comm
    ).items():
        made = EngineDataParallel(backend, training, comm)
        calls[name] = partial(run_updates, made, Batches(), comm.size, made.mean_losses)
        if argument["by_hand"]:
            calls[f"{name} by hand"] = MethodLoop(name, comm)
    times = time_interleaved(
        {n: paced(comm, call) for n, call in calls.items()}, argument["rounds"]
    )
    return {name: [t / SHARED_STEPS for t in found] for name, found in times.items()}


def reduction_variants(comm: Any, backend: TorchBackend) -> dict[str, Callable[[], None]]:
    """Return dualml's all-reduce variants: after the backward pass, and overlapped with it."""
    calls = {}
    for name, settings in (("ours", Aggregation()), ("overlap", Aggregation(overlap=True))):
        training = backend.training(recipe())
        buckets = bucket_layout(recipe().spec.parameters(), settings.bucket_bytes)
        pieces = (
            training.require_capability(CommOverlap).make_reducing_buckets(buckets, comm)
            if settings.overlap
            else training.require_capability(GradientAccess).make_buckets(buckets)
        )
        made = parallel_trainer_class(settings)(backend, training, pieces, comm, settings)
        calls[name] = partial(run_updates, made, Batches(), comm.size, made.mean_losses)
    return calls
