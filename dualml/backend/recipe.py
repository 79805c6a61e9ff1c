"""What a model is trained with, whole: one argument wherever a model is made."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dualml.model.recompute import Groups
from dualml.model.spec import ModelSpec
from dualml.model.streams import Hidden
from dualml.optim.base import Rule, State
from dualml.optim.schedule import Schedule
from dualml.precision import FULL, Precision

Array = NDArray[Any]
CONSTANT = Schedule()


@dataclass(frozen=True, kw_only=True, eq=False)
class Recipe:
    """All that decides the numbers of a training, but for the order of its samples.

    Attributes:
        spec: the model.
        weights: canonical name → float32, at the start, of parameters and buffers.
        rule, schedule: the update rule, and what scales its step size.
        loss: name of the loss in `dualml.reference.losses`.
        x: training samples, float32 (N, …); of a model of text, tokens (N, T) of any integer type.
        y: int64 (N,), or (N, T) where a sample has a label for every position.
        updates: length of the training, which schedules depend on.
        chunk: samples whose gradient is computed at once; larger batches are accumulated.
        batch: samples of an update in a trial with one rank; 0: unknown, or shared by ranks. The
            way of computing is chosen for it where the numbers are the same but for rounding.
        global_batch: samples of an update of all ranks together; 0: unknown.
        seed: of the trial; the masks of Dropout are drawn from it (`dualml.model.dropout`).
        precision: of the products, and how the loss is scaled (`dualml.precision`).
        recompute: layers of which activations are not kept but computed again
            (`dualml.model.recompute`); this alone decides no number.
        streams: of a stateful model the samples of every update of an epoch, integers
            (updates, B), each column a stream (`dualml.model.streams`); None: every batch begins
            with a state of zeros.
    """

    spec: ModelSpec
    weights: Mapping[str, Array]
    rule: Rule
    schedule: Schedule = CONSTANT
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

    def hidden(self, dtype: Any = np.float32) -> Hidden | None:
        """The states that its model carries over batches, at the start; None of another model."""
        return Hidden(self.spec.layers, self.streams, dtype) if self.spec.stateful else None

    def rate(self, step: int) -> float:
        """The step size of update ``step`` (from 1)."""
        return self.rule.lr * self.schedule.factor(step, self.updates)

    def state(self) -> State:
        """The optimizer's state before the first update."""
        names = self.spec.parameters()
        return self.rule.init({n: self.weights[n].astype(np.float64) for n in names})

    def rates(self) -> list[float]:
        """The step sizes of all updates."""
        return [self.rate(step) for step in range(1, self.updates + 1)]
