"""Cross-entropies with a number that is fitted: smoothed labels, a temperature, a focus."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dualml.backend.reference.types import Array, as_matrix
from dualml.parity.finder.causes.base import Observation
from dualml.parity.finder.causes.relations import nearest_simple
from dualml.parity.transforms import log_softmax

Labels = NDArray[Any]
#: A loss function: (logits, labels) → value; its gradient is not needed here.
Value = Callable[[Array, Labels], float]
Change = tuple[str, Value, dict[str, Any]]


def negative_log_likelihood(log: Array, y: Labels) -> float:
    """Return the negative log-likelihood of the labels, averaged; ``log`` holds
    log-probabilities."""
    return float(-as_matrix(log)[np.arange(y.size), y.ravel()].mean())


def smoothed_loss(share: float) -> Value:
    """Return a loss function: the cross-entropy with label smoothing by ``share``."""

    def value(out: Array, y: Labels) -> float:
        log = log_softmax(out)
        return (1 - share) * negative_log_likelihood(log, y) - share * float(log.mean())

    return value


def fitted_losses(suspect: Observation) -> Iterator[Change]:
    """Yield (cause, loss function, details): cross-entropies whose label smoothing or temperature
    of the logits is fitted to the recorded loss of the batch, and focal losses with usual
    exponents; nothing if that loss was not recorded or is not finite."""
    scene, step = suspect.scene, suspect.violations[0][0]
    parts = [part for part in scene.indices_by_rank(step) if len(part)]
    index, seen = np.concatenate(parts), suspect.recorded(*suspect.violations[0]).get("batch")
    if seen is None or not np.isfinite(seen).all():
        return
    out, y, wanted = scene.logits(step, index)[0], scene.recipe.y[index], float(seen[0])
    plain, even = (smoothed_loss(share)(out, y) for share in (0.0, 1.0))
    if even != plain:
        share = nearest_simple((wanted - plain) / (even - plain))
        if 0 < share < 1:
            yield "label-smoothing", smoothed_loss(share), {"smoothing": share}
    for gamma in (0.5, 1, 2, 3, 5):
        yield "focal-loss", focal_loss(gamma), {"gamma": gamma}
    grid = np.geomspace(0.01, 100, 401)
    gaps = [heated_loss(t)(out, y) - wanted for t in grid]
    for i in np.flatnonzero(np.diff(np.sign(gaps)))[:3]:
        low, high = grid[i], grid[i + 1]
        for _ in range(60):
            middle = (low + high) / 2
            same = (heated_loss(middle)(out, y) - wanted) * gaps[i] > 0
            low, high = (middle, high) if same else (low, middle)
        heat = nearest_simple(float(low))
        if abs(heat - 1) > 1e-3:
            yield "temperature", heated_loss(heat), {"temperature": heat}


def heated_loss(temperature: float) -> Value:
    """Return a loss function: the cross-entropy of the logits divided by a temperature."""
    return lambda out, y: negative_log_likelihood(log_softmax(out / temperature), y)


def focal_loss(gamma: float) -> Value:
    """Return a loss function: the focal loss, −(1 − p)^γ · log p of the label's probability p."""

    def value(out: Array, y: Labels) -> float:
        log = as_matrix(log_softmax(out))[np.arange(y.size), y.ravel()]
        return float(-((1 - np.exp(log)) ** gamma * log).mean())

    return value
