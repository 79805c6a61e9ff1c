"""The training loop of a trial, and the same loop as experts write it in plain PyTorch."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from dualml.algorithms.model import ModelSpec, initial_weights, model
from dualml.algorithms.optim import Adam
from dualml.backend import Array, TrainingSpec
from dualml.common.seeds import make_generator
from dualml.interface.bench.section import BenchJob
from dualml_torch.algorithms.model import Network
from dualml_torch.backend import TorchBackend
from dualml_torch.bench.race import capture_graph, time_milliseconds
from dualml_torch.common.environment import resolve_device

MODELS = ("lenet", "mlp")
BATCH, RATE = 64, 1e-3
#: Name of a loop → options of its optimizer.
OPTIMIZER_OPTIONS: dict[str, dict[str, Any]] = {
    "loop": {"foreach": False},
    "foreach": {"foreach": True},
    "fused": {"fused": True},
    "compiled": {"fused": True},
    "graph": {"fused": True, "capturable": True},
}


@dataclass(frozen=True)
class BenchWork:
    """The workload that all loops share: ``steps`` updates per round, batches in one order.

    Attributes:
        x, y: samples; images of normally distributed pixels, labelled by a random linear map.
        order: (updates, batch) their indices; a round begins where the previous one ended.
    """

    spec: ModelSpec
    weights: dict[str, Array]
    x: Array
    y: Array
    order: Array
    steps: int
    device: torch.device
    threads: int


def make_work(job: BenchJob, name: str) -> BenchWork:
    """Make random samples, batches and initial weights for the model ``name`` of the zoo; few for a
    quick job. Always the same for one name."""
    spec, samples, steps = model(name), *((256, 3) if job.quick else (8192, 32))
    draw = make_generator(0, "bench", name)
    x = draw.normal(size=(samples, *spec.input_shape)).astype(np.float32)
    y = (x.reshape(samples, -1) @ draw.normal(size=(x[0].size, 10))).argmax(1).astype(np.int64)
    order = np.concatenate([draw.permutation(samples) for _ in range(8)]).reshape(-1, BATCH)
    weights, device = initial_weights(spec, 0), resolve_device(job.device)
    return BenchWork(spec, weights, x, y, order, steps, device, job.threads)


class Loop:
    """A training loop; calling it runs one round and returns milliseconds per update, including the
    reading of its losses."""

    def __init__(self, work: BenchWork) -> None:
        self.work, self.next_update = work, 0
        self.losses: list[float] = []

    def __call__(self) -> float:
        return time_milliseconds(self.work.device, self.run_round) / self.work.steps

    def run_round(self) -> None:
        """Run the next ``steps`` updates and append their losses to `losses`; restart the order at
        its end."""
        if self.next_update + self.work.steps > len(self.work.order):
            self.next_update = 0
        self.losses += self.run_updates(self.next_update, self.next_update + self.work.steps)
        self.next_update += self.work.steps

    def run_updates(self, first: int, last: int) -> list[float]:
        """Make the updates from number ``first`` to ``last`` (exclusive, from 0) and return their
        losses; subclasses implement it."""
        raise NotImplementedError


class TrialLoop(Loop):
    """The loop of a trial: deterministic operations, batches in the order of the plan."""

    def __init__(self, work: BenchWork) -> None:
        super().__init__(work)
        self.backend = TorchBackend(str(work.device), work.threads)
        self.step = 0
        recipe = TrainingSpec(
            spec=work.spec,
            weights=work.weights,
            rule=Adam(lr=RATE),
            x=work.x,
            y=work.y,
            updates=len(work.order),
        )
        self.training = self.backend.training(recipe)

    def run_updates(self, first: int, last: int) -> list[float]:
        """Make the updates by `Training.step` with deterministic operations; read the losses at the
        end."""
        with deterministic("error"):
            lazy = []
            for batch in self.work.order[first:last]:
                self.step += 1
                lazy.append(self.training.step(batch, self.step))
            losses: list[float] = self.backend.materialize_losses(lazy).tolist()
        return losses


class PlainLoop(Loop):
    """The plain loop: samples and order on the device, one gather per batch, no waiting within a
    round.

    Args:
        how: a key of `OPTIMIZER_OPTIONS`.
        precision: the type that autocast computes in; float16 with a scaled loss.
    """

    def __init__(self, work: BenchWork, how: str, precision: torch.dtype | None = None) -> None:
        super().__init__(work)
        device, network = work.device, Network(work.spec)
        network.load(work.weights)
        self.net = nn.Sequential(*network.children()).to(device)
        self.x, self.y = (torch.from_numpy(a).to(device) for a in (work.x, work.y))
        self.order = torch.from_numpy(work.order).to(device)
        self.optimizer = torch.optim.Adam(self.net.parameters(), lr=RATE, **OPTIMIZER_OPTIONS[how])
        self.precision = precision
        self.scaler = torch.amp.GradScaler(device.type, enabled=precision is torch.float16)
        self.loss_function = torch.compile(self.loss) if how == "compiled" else self.loss
        self.replay: Callable[[], Any] | None = None
        if how == "graph":
            with deterministic("default"):
                self.record_graph()

    def loss(self, x: Tensor, y: Tensor) -> Tensor:
        """Return the mean cross entropy of the network for samples ``x`` and labels ``y``."""
        return functional.cross_entropy(self.net(x), y)

    def update(self, x: Tensor, y: Tensor) -> Tensor:
        """Make one Adam update on a batch, in autocast if there is a ``precision``; return the loss
        before it, detached, on the device. In float16 an update whose gradients overflow is
        skipped."""
        kind = self.work.device.type
        with torch.autocast(kind, self.precision, enabled=self.precision is not None):
            loss = self.loss_function(x, y)
        self.optimizer.zero_grad(set_to_none=True)
        self.scaler.scale(loss).backward()
        self.scaler.step(self.optimizer)
        self.scaler.update()
        return loss.detach()

    def record_graph(self) -> None:
        """Record an update as a CUDA graph that later updates replay; restore the weights, but not
        the state of the optimizer, which recording changed."""
        start = {n: p.detach().clone() for n, p in self.net.state_dict().items()}
        self.batch = self.order[0].clone()

        def update() -> None:
            x, y = self.x.index_select(0, self.batch), self.y.index_select(0, self.batch)
            self.result = self.update(x, y)

        fresh = self.optimizer.zero_grad
        graph = capture_graph(self.work.device, update, lambda: fresh(set_to_none=True))
        self.net.load_state_dict(start)
        self.replay = graph.replay

    def run_updates(self, first: int, last: int) -> list[float]:
        """Gather each batch on the device and update, or replay the CUDA graph; read the losses at
        the end."""
        with deterministic("default"):
            losses = []
            for batch in self.order[first:last]:
                if self.replay is None:
                    x, y = self.x.index_select(0, batch), self.y.index_select(0, batch)
                    losses.append(self.update(x, y))
                else:
                    self.batch.copy_(batch)
                    self.replay()
                    losses.append(self.result.clone())
            values: list[float] = torch.stack(losses).tolist()
        return values


@contextlib.contextmanager
def deterministic(mode: str) -> Iterator[None]:
    """Return a context manager that sets PyTorch's deterministic debug mode (``default``, ``warn``
    or ``error``) and restores it at the end, so that the cost of a trial's choice does not count
    against other loops."""
    before = torch.get_deterministic_debug_mode()
    torch.set_deterministic_debug_mode(mode)
    try:
        yield
    finally:
        torch.set_deterministic_debug_mode(before)
