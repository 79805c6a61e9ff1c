"""Complete specification of one training: the single argument that builds a model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dualml.algorithms.model.recompute import Groups
from dualml.algorithms.model.spec import ModelSpec
from dualml.algorithms.model.streams import HiddenStates
from dualml.algorithms.optim.base import OptimizerSpec, State
from dualml.algorithms.optim.schedule import LRSchedule
from dualml.algorithms.precision import FULL, Precision
from dualml.common.former_members import keep_former_members

Array = NDArray[Any]
CONSTANT = LRSchedule()


@keep_former_members
@dataclass(frozen=True, kw_only=True, eq=False)
class TrainingSpec:
    """Everything that determines the numbers of a training, except the order of its samples.

    Attributes:
        spec: the model.
        weights: canonical name → initial value, float32, of parameters and buffers.
        rule, schedule: the optimizer, and the schedule that scales its learning rate.
        loss: name of the loss in `dualml.backend.reference.losses`.
        x: training samples, float32 (N, …); for a text model tokens (N, T) of any integer type.
        y: labels, int64 (N,), or (N, T) with one label per position.
        updates: length of the training in updates, which schedules depend on.
        chunk: samples whose gradient is computed at once; larger batches are accumulated.
        batch: samples per update of a trial with one rank; 0: unknown, or shared by ranks. Backends
            may choose their implementation by it where the numbers agree up to rounding.
        global_batch: samples per update of all ranks together; 0: unknown.
        seed: seed of the trial; the dropout masks are drawn from it
            (`dualml.algorithms.model.dropout`).
        precision: precision of the matrix products, and how the loss is scaled
            (`dualml.algorithms.precision`).
        recompute: groups of layers whose activations are recomputed instead of saved
            (`dualml.algorithms.model.recompute`); this changes no number.
        streams: for a stateful model, the samples of every update of an epoch, integers (updates,
            B), each column a stream (`dualml.algorithms.model.streams`); None: every batch begins
            with a zero state.
    """

    spec: ModelSpec
    weights: Mapping[str, Array]
    rule: OptimizerSpec
    schedule: LRSchedule = CONSTANT
    loss: str = "cross_entropy"
    x: Array
    y: Array
    updates: int
    chunk: int = 256
    batch: int = 0
    global_batch: int = 0
    seed: int = 0
    precision: Precision = FULL
    recompute: Groups = ()
    streams: Array | None = None

    def make_hidden_states(self, dtype: Any = np.float32) -> HiddenStates | None:
        """Return the hidden states that a stateful model carries across batches, in their initial
        state; None for a stateless model."""
        return HiddenStates(self.spec.layers, self.streams, dtype) if self.spec.stateful else None

    def learning_rate(self, step: int) -> float:
        """Return the learning rate of update ``step`` (from 1)."""
        return self.rule.lr * self.schedule.factor(step, self.updates)

    def initial_state(self) -> State:
        """Return the optimizer state before the first update: state key → parameter name → float64
        array."""
        names = self.spec.parameters()
        return self.rule.init({n: self.weights[n].astype(np.float64) for n in names})

    def learning_rates(self) -> list[float]:
        """Return the learning rates of all updates, from update 1 to the last."""
        return [self.learning_rate(step) for step in range(1, self.updates + 1)]
