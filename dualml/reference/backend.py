"""The NumPy backend: the same interface as the frameworks', executed in float64 by hand."""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

import numpy as np

from dualml import machine
from dualml.backend import Array, Arrays, Trace, batch_digest, chunks
from dualml.communicator import Communicator
from dualml.errors import Unsupported, UserError
from dualml.model.dropout import masks
from dualml.model.spec import ModelSpec
from dualml.optim.base import Params, Rule, State
from dualml.optim.schedule import Schedule
from dualml.reference.aggregation import NumpyPieces
from dualml.reference.losses import LOSSES
from dualml.reference.model import Model
from dualml.reference.overlap import NumpyOverlap
from dualml.reference.split import NumpyStage
from dualml.split.horizontal import Segment
from dualml.split.plan import SplitPlan

VARIABLES = tuple(machine.thread_variables(1))


class NumpyTraining:
    """See `dualml.backend.Training`."""

    def __init__(
        self,
        model: Model,
        rule: Rule,
        schedule: Schedule,
        loss: str,
        x: Array,
        y: Array,
        updates: int,
        chunk: int,
        seed: int = 0,
    ) -> None:
        self.model, self.rule, self.schedule, self.loss = model, rule, schedule, loss
        self.x, self.y, self.updates, self.chunk = x, y, updates, chunk
        self.seed, self.now = seed, 0
        self._state: State = rule.init(model.weights)

    def gradient(self, batch: Array) -> tuple[float, Params]:
        """Mean loss and mean gradient of the batch, in chunks."""
        total: Params = {name: np.zeros_like(w) for name, w in self.model.weights.items()}
        mean = 0.0
        for part, share in chunks(batch, self.chunk):
            drawn = tuple(masks(self.model.spec, self.seed, self.now + 1, part).values())
            loss, grads = self.model.loss_and_gradients(
                self.x[part], self.y[part], self.loss, drawn
            )
            mean += share * loss
            for name, g in grads.items():
                total[name] += share * g
        return mean, total

    def step(self, batch: Array, step: int) -> float:
        loss, grads = self.gradient(batch)
        self.update(grads, step)
        return loss

    def update(self, gradients: Params, step: int) -> None:
        lr = self.rule.lr * self.schedule.factor(step, self.updates)
        self.model.weights, self._state = self.rule.update(
            self.model.weights, gradients, self._state, step, lr
        )
        self.now = step

    def trace(self, batch: Array, probe: Array) -> Trace:
        loss, grads = self.gradient(batch)
        return Trace(*self.look(batch, probe), loss=loss, gradients=grads)

    def look(self, batch: Array, probe: Array) -> tuple[str, Arrays]:
        _, tape = self.model.forward(self.x[probe])
        return batch_digest(*self.given(batch)), {name: value for name, _, value, _ in tape}

    def given(self, batch: Array) -> tuple[Array, Array]:
        return self.x[batch], self.y[batch]

    def pieces(self, layout: Sequence[Sequence[str]]) -> NumpyPieces:
        return NumpyPieces(self, layout)

    def overlapping(self, layout: Sequence[Sequence[str]], comm: Communicator) -> NumpyOverlap:
        return NumpyOverlap(self, layout, comm)

    def native(self, comm: Communicator) -> NoReturn:
        raise Unsupported("the NumPy reference has no data parallel training of its own")

    def replicas(self) -> NoReturn:
        raise Unsupported("the NumPy reference has one device, and no replicas to split a batch on")

    def evaluate(self, x: Array, y: Array) -> tuple[float, Array]:
        logits, _ = self.model.forward(x)
        return float(LOSSES[self.loss](logits, y)[0]), logits.argmax(axis=-1)

    def weights(self) -> Arrays:
        return {name: w.copy() for name, w in self.model.weights.items()}

    def state(self) -> dict[str, Arrays]:
        return {
            slot: {n: s.copy() for n, s in named.items()} for slot, named in self._state.items()
        }

    def load(self, weights: Arrays, state: Mapping[str, Arrays], step: int) -> None:
        self.model.weights = {name: np.array(w, np.float64) for name, w in weights.items()}
        self._state = {
            slot: {n: np.array(s, np.float64) for n, s in named.items()}
            for slot, named in state.items()
        }
        self.now = step


class NumpyBackend:
    """See `dualml.backend.Backend`.

    Raises:
        UserError: a device other than ``auto`` or ``cpu``.
    """

    name = "numpy"
    dtype = "float64"

    def __init__(self, device: str = "auto", threads: int = 0) -> None:
        if device not in ("auto", "cpu"):
            raise UserError(f"backend numpy runs on the CPU only; received --device {device}")
        self.threads = threads

    def environment(self) -> dict[str, str]:
        return {
            "numpy": np.__version__,
            "python": platform.python_version(),
            "device": "cpu",
            "threads": str(self.threads or machine.default_threads()),
            "dtype": self.dtype,
            "deterministic": "yes",
            **{name: os.environ[name] for name in VARIABLES if name in os.environ},
            **machine.environment(),
        }

    def training(
        self,
        spec: ModelSpec,
        weights: Arrays,
        rule: Rule,
        schedule: Schedule,
        loss: str,
        x: Array,
        y: Array,
        *,
        updates: int,
        chunk: int = 256,
        seed: int = 0,
    ) -> NumpyTraining:
        model = Model(spec, weights)
        return NumpyTraining(model, rule, schedule, loss, x, y, updates, chunk, seed)

    def stage(
        self,
        segments: Sequence[Segment],
        *,
        first: bool,
        last: bool,
        rule: Rule,
        schedule: Schedule,
        loss: str,
        x: Array,
        y: Array,
        updates: int,
    ) -> NumpyStage:
        return NumpyStage(segments, first, rule, schedule, loss, x, y, updates)

    def rpc(self, plan: SplitPlan, comm: Communicator, **options: Any) -> NoReturn:
        raise Unsupported(
            "the NumPy reference has no remote procedure calls: its ranks are threads of one "
            'process; engine = "messages" runs the same split'
        )

    def read(self, losses: Sequence[Any]) -> Array:
        return np.array(losses, np.float64)

    def synchronize(self) -> None:
        """NumPy computes at once."""
