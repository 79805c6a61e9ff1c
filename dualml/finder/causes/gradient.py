"""What can be wrong with a gradient whose forward pass and loss are right.

Most of it is a matter of weights: the gradient of a batch is the mean over its samples; some may
count twice, some not at all, and all may be scaled. The weights that fit best say which.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dualml.finder.causes.base import Arrays, Guess, Suspect, fit, narrow, scaled
from dualml.reference.losses import LOSSES
from dualml.reference.types import Params

#: So many samples are told apart.
MOST_SAMPLES = 256


def guesses(suspect: Suspect) -> Iterator[Guess]:
    yield from sizes(suspect)
    yield from by_sample(suspect)
    yield from micro_batches(suspect)
    yield from clipped(suspect)
    yield from decayed(suspect)
    yield from left_out(suspect)
    yield from stale(suspect)
    yield from doubled(suspect)
    yield from other_loss(suspect)
    yield from narrow(suspect)
    yield from transposed(suspect)


def sizes(suspect: Suspect) -> Iterator[Guess]:
    """All of it larger or smaller."""
    scene = suspect.scene

    def samples(step: int, rank: int) -> int:
        y = scene.y[scene.part(step, rank)]
        return int(y.size)

    def times(factor: Callable[[int, int], float]) -> Callable[[int, int], Arrays]:
        return lambda s, r: {n: factor(s, r) * a for n, a in suspect.right(s, r).items()}

    yield Guess("sum-not-mean", times(samples), {"factor": "samples"})
    ranks = len(scene.referee.ranks)
    if ranks > 1:
        yield Guess("sum-not-mean", times(lambda s, r: ranks), {"factor": "ranks"})
        yield Guess("averaged-twice", times(lambda s, r: 1 / ranks), {"factor": f"1/{ranks}"})
    micro = micro_count(suspect)
    if micro > 1:
        yield Guess("sum-not-mean", times(lambda s, r: micro), {"factor": "micro-batches"})
    yield Guess("flipped-sign", times(lambda s, r: -1.0), {"factor": -1})
    yield Guess("frozen-parameters", times(lambda s, r: 0.0), {"factor": 0})
    yield from scaled(suspect, "scaled-gradient", {})


def micro_count(suspect: Suspect) -> int:
    split = suspect.scene.plan.splits.get(suspect.scene.arm_name)
    return split.micro_batches if split is not None else 1


def flat(named: Params) -> NDArray[np.float64]:
    return np.concatenate([named[name].ravel() for name in named])


def weights_of(suspect: Suspect, step: int, rank: int, groups: list[NDArray[Any]]) -> NDArray[Any]:
    """How much the gradient of each group of samples counts, as a share of what it should."""
    scene, index = suspect.scene, suspect.scene.part(step, rank)
    each = scene.each_gradient(step, index)
    columns = []
    for group in groups:
        total = sum(flat(each[i][1]) for i in group) / len(index)
        columns.append(total)
    seen = suspect.seen(step, rank)
    names = list(each[0][1])
    target = np.concatenate([seen[n].astype(np.float64).ravel() for n in names])
    scale = scene_factor(suspect, step, rank)
    found: NDArray[Any] = np.linalg.lstsq(np.stack(columns, 1) * scale, target, rcond=None)[0]
    return found


def scene_factor(suspect: Suspect, step: int, rank: int) -> float:
    """What this rank's mean gradient is multiplied with before all are added up."""
    own, whole = len(suspect.scene.part(step, rank)), len(suspect.scene.batch(step))
    return own / whole


def weighted(
    suspect: Suspect, cause: str, groups: Callable[[int, int], list[NDArray[Any]]], what: str
) -> Iterator[Guess]:
    """Each group with the weight that fits best, rounded to a number that people would write."""
    fitted: dict[tuple[int, int], NDArray[Any]] = {}
    for step, rank in suspect.looks:
        seen = suspect.seen(step, rank)
        shapes = {n: a.shape for n, a in suspect.right(step, rank).items()}
        if {n: a.shape for n, a in seen.items()} != shapes or not all(
            np.isfinite(a).all() for a in seen.values()
        ):
            return
        found = weights_of(suspect, step, rank, groups(step, rank))
        fitted[step, rank] = np.round(found * 4) / 4 + 0.0  # no -0

    def predict(step: int, rank: int) -> Arrays:
        if (step, rank) not in fitted:
            return {}
        index = suspect.scene.part(step, rank)
        each = suspect.scene.each_gradient(step, index)
        scale = scene_factor(suspect, step, rank) / len(index)
        found = {n: np.zeros_like(a) for n, a in each[0][1].items()}
        for weight, group in zip(fitted[step, rank], groups(step, rank), strict=True):
            for i in group:
                for name, g in each[i][1].items():
                    found[name] = found[name] + weight * scale * g
        return found

    first = fitted[suspect.looks[0]]
    if len(set(first.tolist())) == 1:
        return  # all alike: that is a matter of size
    odd = [i for i, w in enumerate(first) if w != np.median(first)]
    told = {
        what: odd[:8],
        "weights": [float(first[i]) for i in odd[:8]],
        "usual": float(np.median(first)),
    }
    yield Guess(cause, predict, told, free=1)


def by_sample(suspect: Suspect) -> Iterator[Guess]:
    """Samples that count twice, or not at all."""
    if any(len(suspect.scene.part(s, r)) > MOST_SAMPLES for s, r in suspect.looks):
        return
    if any(not len(suspect.scene.part(s, r)) for s, r in suspect.looks):
        return

    def groups(step: int, rank: int) -> list[NDArray[Any]]:
        return [np.array([i]) for i in range(len(suspect.scene.part(step, rank)))]

    for guess in weighted(suspect, "dropped-samples", groups, "samples"):
        more = max(guess.detail["weights"]) > guess.detail["usual"]
        yield Guess(
            "padded-duplicates" if more else "dropped-samples", guess.predict, guess.detail, 2
        )


def micro_batches(suspect: Suspect) -> Iterator[Guess]:
    """Micro-batches, or chunks, that count twice, or not at all."""
    scene, count = suspect.scene, micro_count(suspect)
    if count == 1 or any(len(scene.part(s, r)) > MOST_SAMPLES for s, r in suspect.looks):
        return
    replicas = scene.plan.splits[scene.arm_name].mesh.data

    def groups(step: int, rank: int) -> list[NDArray[Any]]:
        from dualml.communicator.parts import parts_of

        own = np.arange(len(scene.part(step, rank)))
        found: list[NDArray[Any]] = []
        for mine in np.split(own, np.cumsum(parts_of(len(own), replicas))[:-1]):
            found += np.split(mine, np.cumsum(parts_of(len(mine), count))[:-1])
        return [group for group in found if len(group)]

    yield from weighted(suspect, "lost-micro-batch", groups, "micro-batches")


def clipped(suspect: Suspect) -> Iterator[Guess]:
    """Cut off at a norm, or at a value."""
    step, rank = suspect.looks[0]
    seen = suspect.seen(step, rank)
    norm = float(np.sqrt(sum(np.square(a.astype(np.float64)).sum() for a in seen.values())))
    largest = max((float(np.abs(a).max()) for a in seen.values() if a.size), default=0.0)

    def by_norm(step: int, rank: int) -> Arrays:
        right = suspect.right(step, rank)
        size = float(np.sqrt(sum(np.square(a).sum() for a in right.values())))
        return {n: a * min(1.0, norm / size) if size else a for n, a in right.items()}

    def by_value(step: int, rank: int) -> Arrays:
        return {n: np.clip(a, -largest, largest) for n, a in suspect.right(step, rank).items()}

    yield Guess("clipped-gradient", by_norm, {"norm": norm}, free=1)
    yield Guess("clipped-gradient", by_value, {"value": largest}, free=1)


def decayed(suspect: Suspect) -> Iterator[Guess]:
    """Weight decay that is in the gradient already, with a λ that fits."""
    pairs = [(suspect.seen(s, r)[n] - g, suspect.scene.weights(s)[n])
             for s, r in suspect.looks for n, g in suspect.right(s, r).items()
             if n in suspect.seen(s, r) and suspect.seen(s, r)[n].shape == g.shape]  # fmt: skip
    decay = fit(pairs)

    def predict(step: int, rank: int) -> Arrays:
        return {
            n: g + decay * suspect.scene.weights(step)[n]
            for n, g in suspect.right(step, rank).items()
        }

    yield Guess("penalty-in-loss", predict, {"decay": decay}, free=1)


def left_out(suspect: Suspect) -> Iterator[Guess]:
    """Parameters whose gradient is zero."""
    step, rank = suspect.looks[0]
    names = [n for n, a in suspect.seen(step, rank).items() if a.size and not a.any()]
    if names and len(names) < len(suspect.right(step, rank)):
        yield Guess(
            "frozen-parameters",
            lambda s, r: {n: np.zeros_like(suspect.right(s, r)[n]) for n in names},
            {"parameters": names},
        )


def scaled_to_rank(suspect: Suspect, step: int, rank: int, found: Params) -> Arrays:
    c = scene_factor(suspect, step, rank)
    return {n: c * g for n, g in found.items()}


def stale(suspect: Suspect) -> Iterator[Guess]:
    """Of the weights before the last update, or of the batch before."""
    scene = suspect.scene

    def of_weights(step: int, rank: int) -> Arrays:
        if step - 1 not in scene.states:
            return {}
        found = scene.gradient(step, scene.part(step, rank), weights=scene.weights(step - 1))[1]
        return scaled_to_rank(suspect, step, rank, found)

    def of_batch(step: int, rank: int) -> Arrays:
        if step == 1:
            return {}
        found = scene.gradient(step, scene.part(step - 1, rank))[1]
        return scaled_to_rank(suspect, step, rank, found)

    yield Guess("stale-parameters", of_weights, {})
    yield Guess("stale-gradient", of_batch, {})


def doubled(suspect: Suspect) -> Iterator[Guess]:
    """The gradient before it was not set to zero."""

    def predict(step: int, rank: int) -> Arrays:
        return {n: 2 * a for n, a in suspect.right(step, rank).items()}

    yield Guess("not-zeroed", predict, {"factor": 2})


def other_loss(suspect: Suspect) -> Iterator[Guess]:
    """The gradient of another loss than the one that was recorded."""
    scene = suspect.scene
    kind = scene.plan.experiment.loss

    def with_labels(by: int) -> Callable[[int, int], Arrays]:
        def predict(step: int, rank: int) -> Arrays:
            index = scene.part(step, rank)
            out = scene.logits(step, index)[0]
            labels = (scene.y[index] + by) % out.shape[-1]
            return scaled_to_rank(
                suspect, step, rank, scene.gradient(step, index, labels=labels)[1]
            )

        return predict

    for by in (1, -1):
        yield Guess("shifted-labels", with_labels(by), {"by": by})
    for name, loss in LOSSES.items():
        if name != kind:

            def predict(step: int, rank: int, loss: Any = loss) -> Arrays:
                found = scene.gradient(step, scene.part(step, rank), loss=loss)[1]
                return scaled_to_rank(suspect, step, rank, found)

            yield Guess("other-loss", predict, {"is": name})


def transposed(suspect: Suspect) -> Iterator[Guess]:
    """Square matrices turned."""

    def predict(step: int, rank: int) -> Arrays:
        right = suspect.right(step, rank)
        return {n: a.T if a.ndim == 2 and a.shape[0] == a.shape[1] else a for n, a in right.items()}

    yield Guess("transposed-weight", predict, {})
