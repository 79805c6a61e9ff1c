"""Numbers from which results of pipeline stages and of layers are computed, for calculation by
hand."""

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
        residuals: output less target of each sample of each micro-batch.
        gradients: micro-batch → stage → gradients of its mean loss, of weight and bias.
    """

    step: int
    states: Sequence[StageState]
    losses: Tensors
    residuals: Tensors
    gradients: Sequence[Sequence[Tensors]]

    def numbers(self, stage: int, name: str, index: tuple[int, ...]) -> dict[str, Any]:
        """Return by label what an element of ``weight`` or ``bias``, or the ``loss``, is computed
        from."""
        several = len(self.losses) > 1
        labels = [f"L_{k}" if several else "L" for k in range(len(self.losses))]
        if name == "loss" and not several:
            return {"ŷ − y": tuple(float(r) for r in self.residuals[0].ravel())}
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
    losses, residuals, gradients = [], [], []
    for k in range(m):
        at, own = samples_of(k, m, len(x)), [StageState(list(s.values)) for s in states]
        update = PipelineUpdate({**options, "micro_batches": 1}, own, RIGHT, np.float64)
        update.pass_batch(x[at], y[at], [0])
        losses.append(update.losses[0])
        residuals += [update.residual_of(h, target) for h, target in update.pairs]
        gradients.append([s.gradients for s in own])
    return ExplainedUpdate(step, states, losses, residuals, gradients)


def element_inputs(
    arrays: Sequence[Arrays],
    parts: Sequence[slice],
    rank: int,
    key: str,
    index: tuple[int, ...],
    rows: bool,
) -> dict[str, Any]:
    """Return from what the element ``index`` of a rank's result ``key`` is computed, by label.

    Args:
        arrays: inputs of each rank.
        parts: each rank's part of the split features.
        rows: whether the input features are split, not the output features.
    """
    w, b, own = arrays[0]["w"], arrays[0]["b"], arrays[rank]
    if key in ("weight", "bias"):
        shown = {"g": tuple(own["g"][:, index[0]])}
        return shown | ({"x": tuple(own["x"][:, index[1]])} if key == "weight" else {})
    i, j = index
    if key == "x":
        if rows:
            return {"g": tuple(own["g"][i]), "W": tuple(w[:, parts[rank]][:, j])}
        terms = [float(a["g"][i] @ w[s][:, j]) for a, s in zip(arrays, parts, strict=True)]
        return {f"g_{r}·W_{r}": term for r, term in enumerate(terms)}
    if rows:
        terms = [float(a["x"][i] @ w[j, s]) for a, s in zip(arrays, parts, strict=True)]
        return {**{f"x_{r}·W_{r}ᵀ": term for r, term in enumerate(terms)}, "b": float(b[j])}
    row, bias = w[parts[rank]][j], b[parts[rank]][j]
    return {"x": tuple(own["x"][i]), "W": tuple(row), "b": float(bias)}
