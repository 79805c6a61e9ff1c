"""What can be wrong with the samples and labels that a model is given."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dualml.finder.causes.base import Arrays, Guess, Suspect, fit, rounded

Pair = tuple[NDArray[Any], NDArray[Any]]


def guesses(suspect: Suspect) -> Iterator[Guess]:
    scene = suspect.scene

    def guess(
        cause: str,
        change: Callable[[Pair], Pair],
        detail: dict[str, Any] | None = None,
        free: int = 0,
    ) -> Guess:
        def predict(step: int, rank: int) -> Arrays:
            right = suspect.right(step, rank)
            x, y = change((right["x"], right["y"]))
            return {"x": x, "y": y}

        return Guess(cause, predict, detail or {}, free)

    classes = int(scene.y.max()) + 1
    for by in (1, -1):
        yield guess("shifted-labels", lambda p, by=by: (p[0], (p[1] + by) % classes), {"by": by})
        yield guess("rolled-labels", lambda p, by=by: (p[0], np.roll(p[1], by, axis=0)), {"by": by})
    yield guess("reversed-batch", lambda p: (p[0][::-1], p[1][::-1]))
    yield guess("reversed-labels", lambda p: (p[0], p[1][::-1]))
    yield from images(suspect, guess)
    yield from samples(suspect)


def images(suspect: Suspect, guess: Any) -> Iterator[Guess]:
    """The right samples with other numbers in them."""
    step, rank = suspect.looks[0]
    seen, right = suspect.seen(step, rank)["x"], suspect.right(step, rank)["x"]
    if right.dtype.kind != "f":
        yield guess("shifted-tokens", lambda p: (p[0] + 1, p[1]))
        return
    data = suspect.scene.plan.data
    mean, std = float(data.get("mean", 0.0)), float(data.get("std", 1.0)) or 1.0
    yield guess("not-normalised", lambda p: (p[0] * std + mean, p[1]), {"mean": mean, "std": std})
    yield guess("not-normalised", lambda p: ((p[0] * std + mean) * 255, p[1]), {"range": 255})
    yield guess("not-normalised", lambda p: (p[0] * std, p[1]), {"mean": "left out"})
    yield guess("normalised-twice", lambda p: ((p[0] - mean) / std, p[1]))
    yield guess("image-layout", lambda p: (p[0].swapaxes(-1, -2), p[1]), {"axes": "H and W"})
    yield guess("mirrored-images", lambda p: (p[0][..., ::-1], p[1]))
    for kind in ("float16", "bfloat16"):
        yield guess("half-precision", lambda p, k=kind: (rounded(p[0], k), p[1]), {"type": kind})
    if seen.shape == right.shape:
        a = fit([(seen - seen.mean(), right - right.mean())])
        b = float(seen.mean() - a * right.mean())
        told = {"scale": a, "offset": b}
        yield guess("other-normalisation", lambda p: (a * p[0] + b, p[1]), told, free=2)


def samples(suspect: Suspect) -> Iterator[Guess]:
    """Other samples than those of the plan."""
    scene = suspect.scene

    def chosen(
        cause: str, choose: Callable[[int, int], NDArray[Any] | None], **detail: Any
    ) -> Guess:
        def predict(step: int, rank: int) -> Arrays:
            index = choose(step, rank)
            if index is None or not len(index):
                return {}
            return {"x": scene.x[index], "y": scene.y[index]}

        return Guess(cause, predict, detail)

    def part(step: int, rank: int) -> NDArray[Any]:
        return scene.part(step, rank)

    def length(step: int, rank: int) -> int:
        return len(suspect.seen(step, rank)["y"])

    for by in (1, -1):
        yield chosen("shifted-samples", lambda s, r, by=by: (part(s, r) + by) % len(scene.y), by=by)
        yield chosen(
            "other-update",
            lambda s, r, by=by: part(s + by, r) if 1 <= s + by <= scene.updates else None,
            by=by,
        )
    yield chosen("unshuffled", lambda s, r: unshuffled(suspect, s, r))
    yield chosen("dropped-samples", lambda s, r: part(s, r)[: length(s, r)])
    yield chosen("dropped-samples", lambda s, r: part(s, r)[-length(s, r) :])
    yield chosen("padded-duplicates", lambda s, r: np.resize(part(s, r), length(s, r)))
    yield chosen(
        "padded-duplicates",
        lambda s, r: np.concatenate([part(s, r), np.full(max(0, length(s, r) - len(part(s, r))),
                                                         part(s, r)[-1])]),
    )  # fmt: skip
    size = len(scene.parts(suspect.looks[0][0]))
    for other in range(size if size > 1 else 0):
        yield chosen("not-partitioned", lambda s, r, q=other: part(s, q), rank=other)
    if size > 1:
        yield chosen("not-partitioned", lambda s, r: scene.batch(s), rank="all")
        yield chosen("other-rank", lambda s, r: part(s, (r + 1) % size), by=1)
        yield chosen("other-rank", lambda s, r: part(s, (r - 1) % size), by=-1)
    yield chosen("shuffled-batch", lambda s, r: matched(suspect, s, r))


def unshuffled(suspect: Suspect, step: int, rank: int) -> NDArray[Any]:
    """The samples of this update had nobody shuffled them."""
    scene = suspect.scene
    pool = np.sort(scene.plan.pool(scene.arm, scene.seed))
    before = sum(len(p) for p in scene.parts(step)[:rank])
    first = scene.plan.feed(scene.arm, scene.seed).samples(step - 1) + before
    at = (first + np.arange(len(scene.part(step, rank)))) % len(pool)
    found: NDArray[Any] = pool[at].astype(np.int64)
    return found


def matched(suspect: Suspect, step: int, rank: int) -> NDArray[Any] | None:
    """The samples of this part in the order in which they were found, where they are the same."""
    scene, seen = suspect.scene, suspect.seen(step, rank)["x"]
    index = scene.part(step, rank)
    if len(seen) != len(index):
        return None
    rows = {np.ascontiguousarray(scene.x[i]).tobytes(): i for i in index}
    found = [rows.get(np.ascontiguousarray(a.astype(scene.x.dtype)).tobytes()) for a in seen]
    return None if None in found else np.array(found, np.int64)
