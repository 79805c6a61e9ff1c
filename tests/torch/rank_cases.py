"""Training scripts on two ranks, right and wrong, each recorded into a folder of its own.

``python rank_cases.py RANK FOLDER`` makes all cases in one process group; rank 0 also records
the same training in one process.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    parallelize_module,
)
from torch.nn.parallel import DistributedDataParallel
from torch.optim.lr_scheduler import LambdaLR

from dualml.common.errors import UserError
from dualml_torch.record import Recorder

RANKS, BATCH, STEPS = 2, 8, 2
DRAW = np.random.default_rng(0)
X = torch.from_numpy(DRAW.normal(size=(STEPS, BATCH, 6)).astype(np.float32))
Y = torch.from_numpy(DRAW.integers(0, 3, (STEPS, BATCH)))
#: Of the first rank's samples more are padding, which the loss ignores.
PADDED = Y.clone()
PADDED[:, :3] = -100
NORM = 0.05


class Net(nn.Module):
    def __init__(self, norm: bool = False) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(6, 8), nn.Linear(8, 3)
        self.norm = nn.BatchNorm1d(8) if norm else nn.Identity()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(torch.tanh(self.norm(self.first(x))))


class Script:
    """A training script on one rank of ``ranks``.

    Args:
        folder: of the trace.
        rank: number of this rank; None: alone, on the whole batch.
    """

    def __init__(self, folder: Path, rank: int | None) -> None:
        self.folder, self.rank = folder, rank
        self.x, self.y = X, Y
        self.passes, self.draws = 1, 0
        torch.manual_seed(3)
        self.model: nn.Module = Net()
        self.make_optimizer: Callable[[Any], Any] = lambda p: torch.optim.SGD(p, 0.1, momentum=0.9)
        self.before_step: Callable[[], None] = lambda: None
        self.after_step: Callable[[Any], None] = lambda optimizer: None
        self.synchronises: Callable[[bool], Any] = lambda last: contextlib.nullcontext()
        self.wait = 20.0

    def reseed(self, norm: bool = False, seed: int = 3) -> nn.Module:
        torch.manual_seed(seed)
        self.model = Net(norm)
        return self.model

    def train(self, steps: int = STEPS, forward: Any = None) -> Recorder:
        optimizer = self.make_optimizer(list(self.model.parameters()))
        group = None if self.rank is None else True
        recorder = Recorder(
            self.model,
            self.folder,
            optimizer,
            steps=STEPS,
            draws=self.draws,
            group=group,
        )
        recorder.wait = self.wait
        call = forward or self.model

        def update(x: torch.Tensor, y: torch.Tensor) -> None:
            optimizer.zero_grad()
            parts = zip(x.chunk(self.passes), y.chunk(self.passes), strict=True)
            for number, (part, target) in enumerate(parts, 1):
                with self.synchronises(number == self.passes):
                    loss = nn.functional.cross_entropy(call(part), target)
                    (loss / self.passes).backward()
                weight = int((target != -100).sum())
                recorder.saw(loss=loss, weight=weight)
            self.before_step()
            optimizer.step()

        for step in range(steps):
            x, y = self.take(self.x[step]), self.take(self.y[step])
            recorder.run(update, x, y)
            self.after_step(optimizer)
        return recorder

    def take(self, batch: torch.Tensor) -> torch.Tensor:
        if self.rank is None:
            return batch
        return batch.chunk(RANKS)[self.rank]


def wrap(script: Script, **options: Any) -> DistributedDataParallel | None:
    """Let the script train a `DistributedDataParallel` if it is one of several ranks."""
    if script.rank is None:
        return None
    wrapped = DistributedDataParallel(script.model, **options)
    script.model = wrapped
    return wrapped


def shard(script: Script) -> None:
    if script.rank is not None:
        for module in (script.model.first, script.model.last, script.model):
            fully_shard(module)  # type: ignore[arg-type]


def data_parallel(script: Script) -> None:
    script.draws = 1
    wrap(script)
    script.train()


def fully_sharded(script: Script) -> None:
    script.draws = 1
    script.make_optimizer = lambda p: torch.optim.AdamW(p, 1e-2)
    shard(script)
    script.train()


def zero(script: Script) -> None:
    script.draws = 1
    script.make_optimizer = lambda p: torch.optim.Adam(p, 1e-2)
    if wrap(script):
        script.make_optimizer = lambda p: ZeroRedundancyOptimizer(p, torch.optim.Adam, lr=1e-2)
    script.train()


def tensor_parallel(script: Script) -> None:
    script.draws = 1
    if script.rank is not None:
        mesh = init_device_mesh("cpu", (RANKS,))
        plan = {"first": ColwiseParallel(), "last": RowwiseParallel()}
        parallelize_module(script.model, mesh, plan)
        script.take = lambda batch: batch  # type: ignore[method-assign]
    script.train()


def pipeline(script: Script) -> None:
    """Two stages, which send activations and their gradients; every rank has all inputs."""
    model, rank = script.model, script.rank
    if rank is None:
        script.train()
        return
    stage = nn.Module()
    stage.add_module("first" if rank == 0 else "last", model.first if rank == 0 else model.last)  # type: ignore[arg-type]
    stage.forward = lambda x: torch.tanh(stage.first(x)) if rank == 0 else stage.last(x)  # type: ignore[operator]
    optimizer = torch.optim.SGD(stage.parameters(), 0.1, momentum=0.9)
    recorder = Recorder(stage, script.folder, optimizer, steps=STEPS, draws=0, group=True)
    for x, y in zip(X, Y, strict=True):
        with recorder.step(x, y):
            optimizer.zero_grad()
            if rank == 0:
                sent = stage(x)
                dist.send(sent.detach(), 1)
                dist.recv(gradient := torch.empty_like(sent), 1)
                sent.backward(gradient)
            else:
                dist.recv(received := torch.empty(BATCH, 8), 0)
                received.requires_grad_()
                loss = nn.functional.cross_entropy(stage(received), y)
                loss.backward()
                dist.send(received.grad, 0)
                recorder.saw(loss=loss)
            optimizer.step()


def accumulated(script: Script) -> None:
    script.draws, script.passes = 1, 2 if script.rank is not None else 1
    wrapped = wrap(script)
    if wrapped is not None:
        script.synchronises = lambda last: contextlib.nullcontext() if last else wrapped.no_sync()
    script.train()


def mean_of_means(script: Script) -> None:
    script.y = PADDED
    wrap(script)
    script.train()


def sharded_mean_of_means(script: Script) -> None:
    script.y = PADDED
    shard(script)
    script.train()


def never_synchronised(script: Script) -> None:
    wrapped = wrap(script)
    if wrapped is not None:
        script.synchronises = lambda last: wrapped.no_sync()
    script.train()


def local_norm(script: Script) -> None:
    """Clip by the norm of what the rank has."""
    shard(script)
    model = script.model

    def clip() -> None:
        gradients = [p.grad for p in model.parameters()]
        local = [g.to_local() if script.rank is not None else g for g in gradients]  # type: ignore[union-attr]
        total = torch.sqrt(sum((g**2).sum() for g in local))  # type: ignore[union-attr, arg-type, operator]
        for g in local:
            g.mul_(torch.clamp(NORM / (total + 1e-6), max=1.0))  # type: ignore[union-attr]

    script.before_step = clip
    script.train()


def schedule_per_process(script: Script) -> None:
    wrap(script)
    made: list[LambdaLR] = []

    def advance(optimizer: Any) -> None:
        if not made:
            made.append(schedules[id(optimizer)])
        for _ in range(1 if script.rank is None else RANKS):
            made[0].step()

    schedules: dict[int, LambdaLR] = {}
    make = script.make_optimizer

    def make_with_schedule(parameters: Any) -> Any:
        optimizer = make(parameters)
        schedules[id(optimizer)] = LambdaLR(optimizer, lambda n: (n + 1) / 8)
        return optimizer

    script.make_optimizer, script.after_step = make_with_schedule, advance
    script.train()


def no_epoch(script: Script) -> None:
    """Every step is an epoch; without ``set_epoch`` the sampler deals all of them alike."""
    if script.rank is not None:
        script.x, script.y = X[[0, 0]], Y[[0, 0]]
    wrap(script)
    script.train()


def batch_statistics(script: Script) -> None:
    script.reseed(norm=True)
    wrap(script)
    script.train()


def seed_per_rank(script: Script) -> None:
    script.reseed(seed=3 + (script.rank or 0))
    shard(script)
    script.train()


def summed(script: Script) -> None:
    """Add up the gradients by hand, and do not divide."""
    model = script.model

    def exchange() -> None:
        for p in model.parameters():
            dist.all_reduce(p.grad)

    if script.rank is not None:
        script.before_step = exchange
    script.train()


def fewer_steps(script: Script) -> None:
    """The second rank stops after one step, and the first one waits for it."""
    if script.rank is None:
        return
    script.wait = 1.0
    try:
        script.train(steps=STEPS if script.rank == 0 else 1)
    except UserError as error:
        (script.folder / "error.txt").write_text(str(error), "utf-8")


CASES = (
    data_parallel,
    fully_sharded,
    zero,
    tensor_parallel,
    pipeline,
    accumulated,
    mean_of_means,
    sharded_mean_of_means,
    never_synchronised,
    local_norm,
    schedule_per_process,
    no_epoch,
    batch_statistics,
    seed_per_rank,
    summed,
    fewer_steps,
)


@contextlib.contextmanager
def process_group(rank: int, folder: Path) -> Iterator[None]:
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    dist.init_process_group(
        "gloo",
        init_method=f"file://{folder}/store",
        rank=rank,
        world_size=RANKS,
        timeout=timedelta(seconds=60),
    )
    try:
        yield
    finally:
        dist.destroy_process_group()


def main(rank: int, folder: Path) -> None:
    torch.set_num_threads(1)
    with process_group(rank, folder):
        for case in CASES:
            case(Script(folder / case.__name__, rank))
            if rank == 0:
                case(Script(folder / f"{case.__name__}-one", None))
            dist.barrier()


if __name__ == "__main__":
    main(int(sys.argv[1]), Path(sys.argv[2]))
