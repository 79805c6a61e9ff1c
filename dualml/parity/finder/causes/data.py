"""Hypotheses about the samples and labels that a model receives."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from dualml.common.array_types import Array
from dualml.parity.finder.causes.base import HALVES, Arrays, Hypothesis, Observation, fit_factor
from dualml.parity.transforms import round_to_half


def hypotheses(suspect: Observation) -> Iterator[Hypothesis]:
    """Yield the hypotheses about samples and labels that deviate: shifted or reordered labels,
    changed numbers, or other samples."""
    classes = int(suspect.scene.recipe.y.max()) + 1
    for by in (1, -1):
        shifted = predict_changed_data(suspect, lambda x, y, by=by: (x, (y + by) % classes))
        yield Hypothesis("shifted-labels", shifted, {"by": by})
        rolled = predict_changed_data(suspect, lambda x, y, by=by: (x, np.roll(y, by, axis=0)))
        yield Hypothesis("rolled-labels", rolled, {"by": by})
    yield Hypothesis(
        "reversed-batch", predict_changed_data(suspect, lambda x, y: (x[::-1], y[::-1]))
    )
    yield Hypothesis("reversed-labels", predict_changed_data(suspect, lambda x, y: (x, y[::-1])))
    for cause, change, detail in changed_inputs(suspect):
        changed = predict_changed_data(suspect, lambda x, y, change=change: (change(x), y))
        yield Hypothesis(
            cause, changed, detail, fitted_count=2 if cause == "other-normalisation" else 0
        )
    for cause, choose, detail in other_samples(suspect):
        predict = predict_other_samples(suspect, choose)
        fitted = {"shuffled-batch": 1, "other-samples": 2}.get(cause, 0)
        yield Hypothesis(cause, predict, detail, fitted)


def predict_changed_data(suspect: Observation, change: Any) -> Callable[[int, int], Arrays]:
    """Return a function of (update, rank) that predicts samples ``x`` and labels ``y`` after
    ``change``, a function of (x, y) that returns both."""

    def predict(step: int, rank: int) -> Arrays:
        right = suspect.expected(step, rank)
        return dict(zip(("x", "y"), change(right["x"], right["y"]), strict=True))

    return predict


def changed_inputs(
    suspect: Observation,
) -> Iterator[tuple[str, Callable[[Array], Array], dict[str, Any]]]:
    """Yield (cause, change, details): ways to change the numbers in the correct samples. For tokens
    the only one is a shift by one."""
    look = suspect.violations[0]
    seen, right = suspect.recorded(*look)["x"], suspect.expected(*look)["x"]
    if right.dtype.kind != "f":
        yield "shifted-tokens", lambda x: x + 1, {}
        return
    data = suspect.scene.plan.data
    mean, std = float(data.get("mean", 0.0)), float(data.get("std", 1.0)) or 1.0
    yield "not-normalised", lambda x: x * std + mean, {"mean": mean, "std": std}
    yield "not-normalised", lambda x: (x * std + mean) * 255, {"range": 255}
    yield "not-normalised", lambda x: x * std, {"mean": "left out"}
    yield "normalised-twice", lambda x: (x - mean) / std, {}
    yield "image-layout", lambda x: x.swapaxes(-1, -2), {"axes": "H and W"}
    yield "mirrored-images", lambda x: x[..., ::-1], {}
    for kind in HALVES:
        yield "half-precision", lambda x, kind=kind: round_to_half(x, kind), {"type": kind}
    if seen.shape == right.shape:
        a = fit_factor([(seen - seen.mean(), right - right.mean())])
        b = float(seen.mean() - a * right.mean())
        yield "other-normalisation", lambda x: a * x + b, {"scale": a, "offset": b}


#: (update, rank) → sample indices; None: not defined.
Choose = Callable[[int, int], Array | None]


def predict_other_samples(suspect: Observation, choose: Choose) -> Callable[[int, int], Arrays]:
    """Return a function of (update, rank) that predicts ``x`` and ``y`` of the samples that
    ``choose`` gives; no tensors where it gives none."""
    recipe = suspect.scene.recipe

    def predict(step: int, rank: int) -> Arrays:
        index = choose(step, rank)
        if index is None or not len(index):
            return {}
        return {"x": recipe.x[index], "y": recipe.y[index]}

    return predict


def other_samples(suspect: Observation) -> Iterator[tuple[str, Choose, dict[str, Any]]]:
    """Yield (cause, choice, details): choices of other samples than those of the plan, or another
    order."""
    scene, part = suspect.scene, suspect.scene.rank_indices
    total, updates = len(scene.recipe.y), scene.recipe.updates

    def length(step: int, rank: int) -> int:
        return len(suspect.recorded(step, rank)["y"])

    def last_repeated(step: int, rank: int) -> Array:
        index = part(step, rank)
        return np.pad(index, (0, max(0, length(step, rank) - len(index))), "edge")

    for by in (1, -1):
        yield "shifted-samples", lambda s, r, by=by: (part(s, r) + by) % total, {"by": by}
        yield (
            "other-update",
            lambda s, r, by=by: part(s + by, r) if 1 <= s + by <= updates else None,
            {"by": by},
        )
    yield "unshuffled", lambda s, r: unshuffled_indices(suspect, s, r), {}
    yield "dropped-samples", lambda s, r: part(s, r)[: length(s, r)], {}
    yield "dropped-samples", lambda s, r: part(s, r)[-length(s, r) :], {}
    yield "padded-duplicates", lambda s, r: np.resize(part(s, r), length(s, r)), {}
    yield "padded-duplicates", last_repeated, {}
    size = len(scene.indices_by_rank(suspect.violations[0][0]))
    if size > 1:
        for other in range(size):
            yield "not-partitioned", lambda s, r, other=other: part(s, other), {"rank": other}
        yield "not-partitioned", lambda s, r: scene.batch_indices(s), {"rank": "all"}
        for by in (1, -1):
            yield "other-rank", lambda s, r, by=by: part(s, (r + by) % size), {"by": by}
    yield "shuffled-batch", lambda s, r: recorded_order(suspect, s, r), {}
    yield from sample_positions(suspect)


def unshuffled_indices(suspect: Observation, step: int, rank: int) -> Array:
    """Return the sample indices of this update if the data were not shuffled."""
    scene = suspect.scene
    pool = np.sort(scene.plan.pool(scene.arm, scene.recipe.seed))
    before = sum(map(len, scene.indices_by_rank(step)[:rank]))
    sampler = scene.plan.batch_sampler(scene.arm, scene.recipe.seed)
    first = sampler.count_sample_gradients(step - 1) + before
    index: Array = pool[(first + np.arange(len(scene.rank_indices(step, rank)))) % len(pool)]
    return index.astype(np.int64)


def recorded_order(suspect: Observation, step: int, rank: int) -> Array | None:
    """Return the indices of the planned samples in the order in which they were recorded; None if
    other samples were recorded, or one of them twice."""
    x, seen = suspect.scene.recipe.x, suspect.recorded(step, rank)["x"]
    index = suspect.scene.rank_indices(step, rank)
    if len(seen) != len(index):
        return None
    rows = {np.ascontiguousarray(x[i]).tobytes(): i for i in index}
    order = [rows.get(np.ascontiguousarray(a.astype(x.dtype)).tobytes()) for a in seen]
    return None if None in order or len(set(order)) < len(order) else np.array(order, np.int64)


def sample_positions(suspect: Observation) -> Iterator[tuple[str, Choose, dict[str, Any]]]:
    """Yield at most one (cause, choice, details): the samples of the whole batch that were
    recorded, if the same positions are wrong in every update; nothing if one is not of it."""
    scene, rows = suspect.scene, suspect.scene.recipe.x
    told: dict[tuple[int, int], list[int]] = {}
    for step, rank in suspect.violations:
        index, seen = scene.batch_indices(step), suspect.recorded(step, rank)["x"]
        if seen.shape[1:] != rows.shape[1:]:
            return
        place = {np.ascontiguousarray(rows[i]).tobytes(): at for at, i in enumerate(index)}
        found = [place.get(np.ascontiguousarray(a.astype(rows.dtype)).tobytes()) for a in seen]
        if None in found:
            return
        told[step, rank] = [at for at in found if at is not None]
    step, rank = suspect.violations[0]
    before = sum(map(len, scene.indices_by_rank(step)[:rank]))
    right = list(range(before, before + len(scene.rank_indices(step, rank))))
    own = told[step, rank]
    if any(told[s, r] != own for s, r in told if r == rank and len(told[s, r]) == len(own)):
        return
    odd = [i for i, at in enumerate(own) if i >= len(right) or at != right[i]]
    if not odd:
        return
    detail: dict[str, Any] = {"positions": odd, "are": [own[i] for i in odd]}

    def choose(step: int, rank: int) -> Array | None:
        known = told.get((step, rank))
        return None if known is None else scene.batch_indices(step)[known]

    yield "other-samples", choose, detail
