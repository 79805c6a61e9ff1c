"""Numbers from which the results of two pipeline stages are computed, for calculation by hand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dualml.course.exercise import RIGHT, Arrays
from dualml.course.lab4.stage_mistakes import Tensors, samples_of
from dualml.course.lab4.stages import PipelineUpdate, StageState, batch_of, make_states


@dataclass(frozen=True)
class ExplainedUpdate:
    """Numbers from which the results of a right update are computed.

    Attributes:
        step: number of the update, from 1.
        states: both stages before it.
        losses: mean loss of each micro-batch.
        gradients: micro-batch → stage → gradients of its mean loss, of weight and bias.
    """

    step: int
    states: Sequence[StageState]
    losses: Tensors
    gradients: Sequence[Sequence[Tensors]]

    def numbers(self, stage: int, name: str, index: tuple[int, ...]) -> dict[str, Any]:
        """Return by label what an element of ``weight`` or ``bias``, or the ``loss``, is computed
        from."""
        several = len(self.losses) > 1
        labels = [f"L_{k}" if several else "L" for k in range(len(self.losses))]
        if name == "loss":
            return {label: float(x) for label, x in zip(labels, self.losses, strict=True)}
        at, before = ("weight", "bias").index(name), self.step - 1
        shown = {f"θ_{before}": float(self.states[stage].values[at][index])}
        buffer = float(self.states[stage].buffers[at][index])
        shown |= {f"v_{before}": buffer} if buffer else {}
        slopes = [float(each[stage][at][index]) for each in self.gradients]
        return shown | {f"∂{x}/∂θ": g for x, g in zip(labels, slopes, strict=True)}


def explain_update(
    options: Mapping[str, Any], ranks: Sequence[Arrays], step: int
) -> ExplainedUpdate:
    """Compute what the results of update ``step`` of a right training are computed from."""
    states = make_states(ranks, np.float64)
    for before in range(1, step):
        PipelineUpdate(options, states, RIGHT, np.float64).run(*batch_of(ranks, before, np.float64))
    (x, y), m = batch_of(ranks, step, np.float64), options["micro_batches"]
    losses, gradients = [], []
    for k in range(m):
        at, own = samples_of(k, m, len(x)), [StageState(list(s.values)) for s in states]
        update = PipelineUpdate({**options, "micro_batches": 1}, own, RIGHT, np.float64)
        update.pass_batch(x[at], y[at], [0])
        losses.append(update.losses[0])
        gradients.append([s.gradients for s in own])
    return ExplainedUpdate(step, states, losses, gradients)
