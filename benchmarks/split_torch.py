"""Splits in PyTorch, dualml's and the framework's own; split.py starts them on each rank."""

from __future__ import annotations

from typing import Any

import torch
from collectives_torch import reset_scheduling
from efficiency import own_core
from ourparallel import Order, samples
from oursplit import LR, MICRO, race, races
from torch import nn
from torch.nn import functional

from dualml.algorithms.model import model
from dualml.interface.bench.timing import Times
from dualml_torch.algorithms.gloo import use_batch_scheduling
from dualml_torch.algorithms.model.layers import make_layer


def layers(name: str) -> list[nn.Module]:
    """Return a model's layers as `torch.nn` modules."""
    return [make_layer(layer) for _, layer in model(name).layers]


class HandWrittenLoop:
    """A hand-written loop, with gloo's threads and algorithms as in a separate script."""

    def __init__(self, y: torch.Tensor, batch: int, updates: int) -> None:
        self.next, self.updates = Order(len(y), batch), updates

    def __call__(self) -> None:
        torch.use_deterministic_algorithms(False)
        reset_scheduling()
        losses = [self.update(torch.from_numpy(self.next())) for _ in range(self.updates)]
        told = [loss for loss in losses if loss is not None]
        if told:
            torch.stack(told).tolist()
        torch.use_deterministic_algorithms(True)
        use_batch_scheduling()

    def update(self, index: torch.Tensor) -> torch.Tensor | None:
        raise NotImplementedError


class Pipelining(HandWrittenLoop):
    """`torch.distributed.pipelining`: a `PipelineStage` for each half under `Schedule1F1B`."""

    def __init__(
        self, comm: Any, x: torch.Tensor, y: torch.Tensor, batch: int, updates: int
    ) -> None:
        from torch.distributed.pipelining import PipelineStage, Schedule1F1B

        super().__init__(y, batch, updates)
        self.x, self.y, self.rank = x, y, comm.rank
        names = [name for name, _ in model("deep_mlp").layers]
        at, made = names.index("fc4"), layers("deep_mlp")
        self.net = nn.Sequential(*(made[at:] if comm.rank else made[:at]))
        stage = PipelineStage(self.net, comm.rank, 2, torch.device("cpu"))
        self.schedule = Schedule1F1B(stage, MICRO, loss_fn=functional.cross_entropy)
        self.optimizer = torch.optim.SGD(self.net.parameters(), lr=LR, foreach=True)

    def update(self, index: torch.Tensor) -> torch.Tensor | None:
        self.optimizer.zero_grad(set_to_none=True)
        losses: list[torch.Tensor] = []
        if self.rank == 0:
            self.schedule.step(self.x.index_select(0, index))
        else:
            self.schedule.step(target=self.y.index_select(0, index), losses=losses)
        self.optimizer.step()
        return torch.stack([loss.detach() for loss in losses]).mean() if losses else None


class Parallelized(HandWrittenLoop):
    """DTensor: `parallelize_module` with a column- and a row-parallel layer."""

    def __init__(
        self, comm: Any, x: torch.Tensor, y: torch.Tensor, name: str, batch: int, updates: int
    ) -> None:
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.tensor.parallel import (
            ColwiseParallel,
            RowwiseParallel,
            parallelize_module,
        )

        super().__init__(y, batch, updates)
        self.x, self.y = x, y
        names = [n for n, _ in model(name).layers]
        self.net = nn.Sequential(*layers(name))
        plan = {
            str(names.index("fc1")): ColwiseParallel(),
            str(names.index("fc2")): RowwiseParallel(),
        }
        parallelize_module(self.net, init_device_mesh("cpu", (comm.size,)), plan)
        kinds: dict[type, list[Any]] = {}  # an update of many tensors takes one kind of them
        for parameter in self.net.parameters():
            kinds.setdefault(type(parameter.data), []).append(parameter)
        groups = [{"params": parameters} for parameters in kinds.values()]
        self.optimizer = torch.optim.SGD(groups, lr=LR, foreach=True)

    def update(self, index: torch.Tensor) -> torch.Tensor:
        logits = self.net(self.x.index_select(0, index))
        loss = functional.cross_entropy(logits, self.y.index_select(0, index))
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        self.optimizer.step()
        return loss.detach()


def train(comm: Any, argument: dict[str, Any]) -> dict[str, Times]:
    """Return the milliseconds of an update, by variant, of every comparison."""
    own_core(comm.rank)
    x, y = samples()
    own = torch.from_numpy(x), torch.from_numpy(y)
    torch.manual_seed(0)
    batch, updates = argument["batch"], argument["updates"]
    calls = races(comm, x, y, batch, updates)
    calls["pipeline"]["other"] = Pipelining(comm, *own, batch, updates)
    for name in ("mlp", "wide_mlp"):
        calls[name]["other"] = Parallelized(comm, *own, name, batch, updates)
    return race(comm, calls, argument["rounds"])
