"""Hypotheses about the weights of a mean over samples, or over chunks of a batch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dualml.backend import split_into_chunks
from dualml.parity.finder.causes.base import (
    Arrays,
    Hypothesis,
    Observation,
    concat_flat,
    phase_tensors,
)
from dualml.parity.finder.causes.relations import nearest_simple

Weights = NDArray[np.float64]
#: Largest number of samples with separately fitted weights.
MAX_SAMPLES = 64
#: Largest share of a gradient that fitted weights may leave.
MAX_RESIDUAL = 1e-3


def solve_weights(columns: Sequence[Weights], target: Weights) -> Weights | None:
    """Return the weights with which columns sum to a target, as simple fractions where they are
    near one; None if they do not, or if other weights would, too."""
    if not np.isfinite(target).all() or any(len(c) != len(target) for c in columns):
        return None
    matrix = np.stack(columns, 1)
    weights, _, rank, _ = np.linalg.lstsq(matrix, target, rcond=1e-6)
    size = float(np.linalg.norm(target))
    if (
        rank < len(columns)
        or float(np.linalg.norm(matrix @ weights - target)) > MAX_RESIDUAL * size
    ):
        return None
    return np.array([nearest_simple(w) if abs(w) > 1e-4 else 0.0 for w in weights])


def sample_weights(suspect: Observation) -> Iterator[Hypothesis]:
    """Yield the hypotheses that samples of a batch have other weights in the mean: those of a
    chunk, of a class, or at a position in the batch.

    Weights are fitted to the gradient, and have to explain the loss, too. Nothing for a split
    model, for more than MAX_SAMPLES samples of a rank, or if no weights give the recorded gradient.
    """
    scene = suspect.scene
    if scene.arm.split is not None:
        return
    fitted: dict[tuple[int, int], Weights] = {}
    for step, rank in suspect.violations:
        index = scene.rank_indices(step, rank)
        seen = phase_tensors(scene.sides[suspect.backend].ranks[rank], step, "gradient")
        if not 1 < len(index) <= MAX_SAMPLES or not seen:
            return
        share = suspect.batch_share(step, rank) / len(index)
        each = [concat_flat(g) * share for _, g in scene.sample_gradients(step, index)]
        named = scene.sample_gradients(step, index)[0][1]
        if any(n not in seen or seen[n].shape != a.shape for n, a in named.items()):
            return
        found = solve_weights(each, concat_flat({n: seen[n] for n in named}))
        if found is None:
            return
        fitted[step, rank] = found
    for groups, detail, cause, cost in (
        *weights_of_classes(suspect, fitted),
        *weights_of_chunks(suspect, fitted),
        *weights_of_positions(suspect, fitted),
    ):
        yield weighted_samples(suspect, groups, cause, detail, cost)


#: (update, rank) → a weight of each sample, 1 where it counts as usual.
WeightsOf = Any


def weighted_samples(
    suspect: Observation, weights: WeightsOf, cause: str, detail: dict[str, Any], cost: int
) -> Hypothesis:
    """Return the hypothesis that samples count ``weights(step, rank)`` times."""
    scene = suspect.scene

    def gradient(step: int, rank: int) -> Arrays:
        index, w = scene.rank_indices(step, rank), weights(step, rank)
        share = suspect.batch_share(step, rank) / len(index)
        each = scene.sample_gradients(step, index)
        return {
            n: share * sum(c * g[n] for c, (_, g) in zip(w, each, strict=True)) for n in each[0][1]
        }

    def mean_loss(step: int, rank: int) -> float:
        each = scene.sample_gradients(step, scene.rank_indices(step, rank))
        return float(np.mean([c * v for c, (v, _) in zip(weights(step, rank), each, strict=True)]))

    def loss(step: int, rank: int) -> Arrays:
        parts = range(len(scene.indices_by_rank(step)))
        whole = sum(suspect.batch_share(step, q) * mean_loss(step, q) for q in parts)
        told = {"batch": np.array([whole])}
        return told | ({"rank": np.array([mean_loss(step, rank)])} if len(parts) > 1 else {})

    predicts = {"loss": loss, "gradient": gradient}
    other = "gradient" if suspect.phase == "loss" else "loss"
    also = {"gradient": gradient} if other == "gradient" else {}
    return Hypothesis(cause, predicts[suspect.phase], detail, 1, also, cost)


def weights_of_classes(suspect: Observation, fitted: Any) -> Iterator[Any]:
    """Yield at most one row (weights, details, cause, cost): weights that depend on nothing but the
    label, if the fitted ones do; ``weights`` is a function of (update, rank) that gives one for
    each sample.

    Args:
        fitted: (update, rank) → fitted weight of each sample.
    """
    by_label: dict[int, list[float]] = {}
    for (step, rank), weights in fitted.items():
        labels = suspect.scene.recipe.y[suspect.scene.rank_indices(step, rank)]
        if labels.ndim != 1:
            return
        for label, w in zip(labels.tolist(), weights, strict=True):
            by_label.setdefault(label, []).append(float(w))
    means = {label: float(np.mean(w)) for label, w in by_label.items()}
    usual = float(np.median([w for many in by_label.values() for w in many]))
    odd = {label: w for label, w in means.items() if abs(w - usual) > 1e-3}
    alike = all(abs(w - means[c]) < 1e-3 for c, many in by_label.items() for w in many)
    if not odd or not alike or len(odd) > len(means) // 2 or not usual:
        return

    def weights_of(step: int, rank: int) -> Any:
        labels = suspect.scene.recipe.y[suspect.scene.rank_indices(step, rank)]
        return [means.get(label, usual) for label in labels.tolist()]

    relative = [nearest_simple(w / usual) if w else 0.0 for w in odd.values()]
    names = sorted(odd) if len(odd) > 1 else next(iter(odd))
    factor = relative if len(odd) > 1 else relative[0]
    yield weights_of, {"class": names, "factor": factor}, "class-weights", 2


def weights_of_chunks(suspect: Observation, fitted: Any) -> Iterator[Any]:
    """Yield at most one row (weights, details, cause, cost), as `weights_of_classes`: weights that
    are equal within each chunk of a batch whose gradient is accumulated, but differ between
    chunks."""
    chunk, told = suspect.scene.recipe.chunk, dict[tuple[int, int], list[float]]()
    for (step, rank), weights in fitted.items():
        parts = split_into_chunks(np.arange(len(weights)), chunk)
        groups = [weights[part] for part, _ in parts]
        if len(groups) < 2 or any(np.ptp(group) > 1e-3 for group in groups):
            return
        told[step, rank] = [nearest_simple(float(np.mean(g))) if g.any() else 0.0 for g in groups]
    first = next(iter(told.values()))
    if max(first) - min(first) < 1e-3:
        return

    def weights_of(step: int, rank: int) -> Any:
        count = len(suspect.scene.rank_indices(step, rank))
        parts = [part for part, _ in split_into_chunks(np.arange(count), chunk)]
        known = told.get((step, rank), [1.0] * len(parts))
        return [w for w, part in zip(known, parts, strict=True) for _ in part]

    yield weights_of, {"of": "chunks", "weights": first}, "mean-weights", 0


def weights_of_positions(suspect: Observation, fitted: Any) -> Iterator[Any]:
    """Yield at most one row (weights, details, cause, cost), as `weights_of_classes`: weights that
    are the same in all deviating batches, usual at most positions and one multiple of that at the
    others."""
    rows = list(fitted.values())
    if any(len(row) != len(rows[0]) or np.abs(row - rows[0]).max() > 1e-3 for row in rows):
        return
    usual = float(np.median(rows[0]))
    odd = [i for i, w in enumerate(rows[0]) if abs(w - usual) > 1e-3]
    factors = {nearest_simple(float(rows[0][i]) / usual) for i in odd} if usual else set()
    if not odd or len(factors) > 1:
        return
    yield (
        lambda step, rank: fitted.get((step, rank), [1.0] * len(rows[0])),
        {"samples": odd, "factor": next(iter(factors))},
        "sample-weights",
        1,
    )
