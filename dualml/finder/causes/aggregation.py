"""What can be wrong with a gradient that ranks made together, each rank's own being right."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from dualml.finder.causes.base import (
    Arrays,
    Guess,
    Suspect,
    narrow,
    rounded,
    scaled,
    tensors,
)


def guesses(suspect: Suspect) -> Iterator[Guess]:
    scene = suspect.scene
    size = len(scene.referee.ranks)

    def own(step: int, rank: int) -> Arrays:
        return tensors(scene.referee.ranks[rank], step, "gradient")

    def times(c: float) -> Guess:
        cause = "sum-not-mean" if c > 1 else "averaged-twice"
        return Guess(
            cause, lambda s, r: {n: c * a for n, a in suspect.right(s, r).items()}, {"factor": c}
        )

    yield times(float(size))
    yield times(1 / size)
    yield from unsynchronised(suspect, size)
    if all(own(s, q) for s, _ in suspect.looks for q in range(size)):
        yield from by_rank(suspect, size)
        yield from sent_narrow(suspect, size)
        yield from of_parameters(suspect)
    yield Guess("stale-gradient", lambda s, r: before(suspect, s, r), {})
    yield from narrow(suspect)
    yield from scaled(suspect, "scaled-gradient", {})
    zeros = Guess(
        "not-aggregated",
        lambda s, r: {n: 0 * a for n, a in suspect.right(s, r).items()},
        {"found": "zeros"},
    )
    yield zeros


def share(suspect: Suspect, step: int, rank: int) -> float:
    """What a rank's gradient was multiplied with."""
    return len(suspect.scene.part(step, rank)) / len(suspect.scene.batch(step))


def unsynchronised(suspect: Suspect, size: int) -> Iterator[Guess]:
    """Ranks that go on with their own gradient, scaled for the sum or not."""
    scene = suspect.scene
    lone = sorted({rank for _, rank in suspect.looks})

    def predict(step: int, rank: int, c: float = 1.0) -> Arrays:
        mine = tensors(scene.referee.ranks[rank], step, "gradient")
        whole = share(suspect, step, rank) if c else 1.0
        return {n: a / whole for n, a in mine.items()}

    told = {"ranks": lone}
    yield Guess("unsynchronised-rank", lambda s, r: predict(s, r, 0.0), told)
    yield Guess("unsynchronised-rank", lambda s, r: predict(s, r, 1.0), told)


def by_rank(suspect: Suspect, size: int) -> Iterator[Guess]:
    """How much every rank's gradient counts: those that fit best."""
    scene = suspect.scene
    fitted = {}
    for step, rank in suspect.looks:
        seen = suspect.seen(step, rank)
        parts = [tensors(scene.referee.ranks[q], step, "gradient") for q in range(size)]
        names = list(seen)
        if not all(np.isfinite(a).all() and parts[0][n].shape == a.shape for n, a in seen.items()):
            return
        columns = np.stack([np.concatenate([p[n].ravel() for n in names]) for p in parts], 1)
        target = np.concatenate([seen[n].astype(np.float64).ravel() for n in names])
        found, *_ = np.linalg.lstsq(columns, target, rcond=None)
        fitted[step, rank] = np.round(found * 4) / 4 + 0.0  # no -0

    def predict(step: int, rank: int) -> Arrays:
        parts = [tensors(scene.referee.ranks[q], step, "gradient") for q in range(size)]
        weights = fitted.get((step, rank))
        if weights is None:
            return {}
        return {n: sum(w * p[n] for w, p in zip(weights, parts, strict=True)) for n in parts[0]}

    first = fitted[suspect.looks[0]]
    if len(set(first.tolist())) == 1:
        return
    usual = float(np.median(first)) if size > 2 else 1.0
    odd = [q for q, w in enumerate(first) if w != usual]
    told = {"ranks": odd, "weights": [float(first[q]) for q in odd]}
    lost = all(first[q] < usual for q in odd)
    yield Guess("lost-rank" if lost else "doubled-rank", predict, told, free=1)


def sent_narrow(suspect: Suspect, size: int) -> Iterator[Guess]:
    """Every rank's gradient in half precision, and so their sum, or not."""
    for kind in ("float16", "bfloat16"):
        for again in (True, False):

            def predict(step: int, rank: int, kind: str = kind, again: bool = again) -> Arrays:
                ranks = suspect.scene.referee.ranks
                parts = [tensors(ranks[q], step, "gradient") for q in range(size)]
                total = {n: sum(rounded(p[n], kind) for p in parts) for n in parts[0]}
                return {n: rounded(np.asarray(a), kind) if again else a for n, a in total.items()}

            yield Guess("half-precision", predict, {"type": kind})


def of_parameters(suspect: Suspect) -> Iterator[Guess]:
    """Some tensors that no rank sent."""
    step, rank = suspect.looks[0]
    off = []
    for name, seen in suspect.seen(step, rank).items():
        mine = tensors(suspect.scene.referee.ranks[rank], step, "gradient")[name]
        whole = suspect.right(step, rank)[name]
        if seen.shape == mine.shape and np.abs(seen - mine).sum() < np.abs(seen - whole).sum():
            off.append(name)
    if off and len(off) < len(suspect.right(step, rank)):

        def predict(step: int, rank: int) -> Arrays:
            mine = tensors(suspect.scene.referee.ranks[rank], step, "gradient")
            return {name: mine[name] for name in off}

        yield Guess("not-aggregated", predict, {"parameters": off})


def before(suspect: Suspect, step: int, rank: int) -> Arrays:
    """What the ranks made of the update before."""
    scene = suspect.scene
    if step - 1 not in scene.states:
        return {}
    return scene.gradient(step - 1, scene.batch(step - 1))[1]
