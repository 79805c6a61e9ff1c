"""Hypotheses about the samples and labels that a model receives."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dualml.finder.causes.base import HALVES, Arrays, Guess, Suspect, fit, rounded

Array = NDArray[Any]


def guesses(suspect: Suspect) -> Iterator[Guess]:
    """Yield the hypotheses about the data."""
    classes = int(suspect.scene.recipe.y.max()) + 1
    for by in (1, -1):
        shifted = given(suspect, lambda x, y, by=by: (x, (y + by) % classes))
        yield Guess("shifted-labels", shifted, {"by": by})
        rolled = given(suspect, lambda x, y, by=by: (x, np.roll(y, by, axis=0)))
        yield Guess("rolled-labels", rolled, {"by": by})
    yield Guess("reversed-batch", given(suspect, lambda x, y: (x[::-1], y[::-1])))
    yield Guess("reversed-labels", given(suspect, lambda x, y: (x, y[::-1])))
    for cause, change, detail in images(suspect):
        changed = given(suspect, lambda x, y, change=change: (change(x), y))
        yield Guess(cause, changed, detail, free=2 if cause == "other-normalisation" else 0)
    for cause, choose, detail in samples(suspect):
        yield Guess(cause, chosen(suspect, choose), detail)


def given(suspect: Suspect, change: Any) -> Callable[[int, int], Arrays]:
    """Return the prediction with changed samples and labels: ``change(x, y)`` → x and y."""

    def predict(step: int, rank: int) -> Arrays:
        right = suspect.right(step, rank)
        return dict(zip(("x", "y"), change(right["x"], right["y"]), strict=True))

    return predict


def images(suspect: Suspect) -> Iterator[tuple[str, Callable[[Array], Array], dict[str, Any]]]:
    """Yield changes of the numbers in the correct samples."""
    look = suspect.looks[0]
    seen, right = suspect.seen(*look)["x"], suspect.right(*look)["x"]
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
        yield "half-precision", lambda x, kind=kind: rounded(x, kind), {"type": kind}
    if seen.shape == right.shape:
        a = fit([(seen - seen.mean(), right - right.mean())])
        b = float(seen.mean() - a * right.mean())
        yield "other-normalisation", lambda x: a * x + b, {"scale": a, "offset": b}


#: (update, rank) → sample indices; None: not defined.
Choose = Callable[[int, int], Array | None]


def chosen(suspect: Suspect, choose: Choose) -> Callable[[int, int], Arrays]:
    """Return the prediction with other samples, given by ``choose``."""
    recipe = suspect.scene.recipe

    def predict(step: int, rank: int) -> Arrays:
        index = choose(step, rank)
        if index is None or not len(index):
            return {}
        return {"x": recipe.x[index], "y": recipe.y[index]}

    return predict


def samples(suspect: Suspect) -> Iterator[tuple[str, Choose, dict[str, Any]]]:
    """Yield choices of other samples than those of the plan."""
    scene, part = suspect.scene, suspect.scene.part
    total, updates = len(scene.recipe.y), scene.recipe.updates

    def length(step: int, rank: int) -> int:
        return len(suspect.seen(step, rank)["y"])

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
    yield "unshuffled", lambda s, r: unshuffled(suspect, s, r), {}
    yield "dropped-samples", lambda s, r: part(s, r)[: length(s, r)], {}
    yield "dropped-samples", lambda s, r: part(s, r)[-length(s, r) :], {}
    yield "padded-duplicates", lambda s, r: np.resize(part(s, r), length(s, r)), {}
    yield "padded-duplicates", last_repeated, {}
    size = len(scene.parts(suspect.looks[0][0]))
    if size > 1:
        for other in range(size):
            yield "not-partitioned", lambda s, r, other=other: part(s, other), {"rank": other}
        yield "not-partitioned", lambda s, r: scene.batch(s), {"rank": "all"}
        for by in (1, -1):
            yield "other-rank", lambda s, r, by=by: part(s, (r + by) % size), {"by": by}
    yield "shuffled-batch", lambda s, r: matched(suspect, s, r), {}


def unshuffled(suspect: Suspect, step: int, rank: int) -> Array:
    """Return the sample indices of this update if the data were not shuffled."""
    scene = suspect.scene
    pool = np.sort(scene.plan.pool(scene.arm, scene.recipe.seed))
    before = sum(map(len, scene.parts(step)[:rank]))
    first = scene.plan.feed(scene.arm, scene.recipe.seed).samples(step - 1) + before
    index: Array = pool[(first + np.arange(len(scene.part(step, rank)))) % len(pool)]
    return index.astype(np.int64)


def matched(suspect: Suspect, step: int, rank: int) -> Array | None:
    """Return the planned samples in the order in which they were recorded; None if other samples
    were recorded."""
    x, seen = suspect.scene.recipe.x, suspect.seen(step, rank)["x"]
    index = suspect.scene.part(step, rank)
    if len(seen) != len(index):
        return None
    rows = {np.ascontiguousarray(x[i]).tobytes(): i for i in index}
    order = [rows.get(np.ascontiguousarray(a.astype(x.dtype)).tobytes()) for a in seen]
    return None if None in order else np.array(order, np.int64)
