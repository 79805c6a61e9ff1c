"""Hypotheses about a gradient whose forward pass and loss are correct.

The gradient of a batch is the mean over its samples. Most errors are errors of weights: some
samples count twice, some not at all, and all may be scaled. The weights that fit best tell which.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dualml.communicator.parts import parts_of
from dualml.finder.causes.base import (
    Arrays,
    Guess,
    Predict,
    Suspect,
    clipped,
    fit,
    flat,
    narrow,
    norm_of,
    quarters,
    scaled,
)
from dualml.reference.losses import LOSSES

#: Largest number of samples with separately fitted weights.
MOST_SAMPLES = 256
#: (update, rank) → groups of the rank's samples.
Groups = Callable[[int, int], list[NDArray[Any]]]


def guesses(suspect: Suspect) -> Iterator[Guess]:
    """Yield the hypotheses about the gradient."""
    yield from sizes(suspect)
    yield from by_sample(suspect)
    yield from micro_batches(suspect)
    yield from cut_off(suspect)
    yield decayed(suspect)
    yield from left_out(suspect)
    yield from stale(suspect)
    yield Guess("not-zeroed", suspect.times(2), {"factor": 2})
    yield from other_loss(suspect)
    yield from narrow(suspect)
    yield Guess("transposed-weight", suspect.each(turned))


def sizes(suspect: Suspect) -> Iterator[Guess]:
    """Hypothesis: the whole gradient is scaled."""
    scene, ranks, micro = suspect.scene, suspect.ranks, micro_count(suspect)

    def samples(step: int, rank: int) -> Arrays:
        return suspect.times(scene.recipe.y[scene.part(step, rank)].size)(step, rank)

    yield Guess("sum-not-mean", samples, {"factor": "samples"})
    if ranks > 1:
        yield Guess("sum-not-mean", suspect.times(ranks), {"factor": "ranks"})
        yield Guess("averaged-twice", suspect.times(1 / ranks), {"factor": f"1/{ranks}"})
    if micro > 1:
        yield Guess("sum-not-mean", suspect.times(micro), {"factor": "micro-batches"})
    yield Guess("flipped-sign", suspect.times(-1), {"factor": -1})
    yield Guess("frozen-parameters", suspect.times(0), {"factor": 0})
    yield scaled(suspect, "scaled-gradient")


def micro_count(suspect: Suspect) -> int:
    """Return the number of micro-batches; 1 for a model that is not split."""
    split = suspect.scene.plan.splits.get(suspect.scene.arm_name)
    return split.micro_batches if split is not None else 1


def weighted(suspect: Suspect, cause: str, groups: Groups, what: str) -> Iterator[Guess]:
    """Hypothesis: groups of samples have other weights, which are fitted and rounded to multiples
    of 1/4."""

    def totals(step: int, rank: int) -> list[Arrays]:
        """Return what each group adds to the gradient of all ranks."""
        index = suspect.scene.part(step, rank)
        each = [gradient for _, gradient in suspect.scene.each_gradient(step, index)]
        scale = suspect.share(step, rank) / len(index)
        return [{n: scale * sum(each[i][n] for i in group) for n in each[0]}
                for group in groups(step, rank)]  # fmt: skip

    fitted: dict[tuple[int, int], NDArray[Any]] = {}
    for step, rank in suspect.looks:
        seen, right = suspect.seen(step, rank), suspect.right(step, rank)
        alike = {n: a.shape for n, a in seen.items()} == {n: a.shape for n, a in right.items()}
        if not alike or not all(np.isfinite(a).all() for a in seen.values()):
            return
        parts = totals(step, rank)
        fitted[step, rank] = quarters(list(map(flat, parts)), flat({n: seen[n] for n in parts[0]}))

    def predict(step: int, rank: int) -> Arrays:
        if (step, rank) not in fitted:
            return {}
        parts = list(zip(fitted[step, rank], totals(step, rank), strict=True))
        return {n: sum(weight * total[n] for weight, total in parts) for n in parts[0][1]}

    first = fitted[suspect.looks[0]]
    if len(set(first.tolist())) == 1:
        return  # equal weights: covered by scaled gradients
    usual = float(np.median(first))
    odd = [i for i, w in enumerate(first) if w != usual][:8]
    detail = {what: odd, "weights": [float(first[i]) for i in odd], "usual": usual}
    yield Guess(cause, predict, detail, free=1)


def by_sample(suspect: Suspect) -> Iterator[Guess]:
    """Hypothesis: some samples count twice, or not at all."""
    scene = suspect.scene
    if not all(0 < len(scene.part(s, r)) <= MOST_SAMPLES for s, r in suspect.looks):
        return

    def groups(step: int, rank: int) -> list[NDArray[Any]]:
        return [np.array([i]) for i in range(len(scene.part(step, rank)))]

    for guess in weighted(suspect, "dropped-samples", groups, "samples"):
        more = max(guess.detail["weights"]) > guess.detail["usual"]
        cause = "padded-duplicates" if more else "dropped-samples"
        yield Guess(cause, guess.predict, guess.detail, 2)


def micro_batches(suspect: Suspect) -> Iterator[Guess]:
    """Hypothesis: some micro-batches count twice, or not at all."""
    scene, count = suspect.scene, micro_count(suspect)
    if count == 1 or any(len(scene.part(s, r)) > MOST_SAMPLES for s, r in suspect.looks):
        return
    replicas = scene.plan.splits[scene.arm_name].mesh.data

    def groups(step: int, rank: int) -> list[NDArray[Any]]:
        shares = cut(np.arange(len(scene.part(step, rank))), replicas)
        return [group for share in shares for group in cut(share, count) if len(group)]

    yield from weighted(suspect, "lost-micro-batch", groups, "micro-batches")


def cut(samples: NDArray[Any], count: int) -> list[NDArray[Any]]:
    """Split samples into nearly equal parts."""
    return np.split(samples, np.cumsum(parts_of(len(samples), count))[:-1])


def cut_off(suspect: Suspect) -> Iterator[Guess]:
    """Hypothesis: the gradient is clipped at a norm or at a value."""
    seen = suspect.seen(*suspect.looks[0])
    norm = norm_of(seen)
    largest = max((float(np.abs(a).max()) for a in seen.values() if a.size), default=0.0)
    by_norm: Predict = lambda s, r: clipped(suspect.right(s, r), norm)  # noqa: E731
    yield Guess("clipped-gradient", by_norm, {"norm": norm}, free=1)
    by_value = suspect.each(lambda a: np.clip(a, -largest, largest))
    yield Guess("clipped-gradient", by_value, {"value": largest}, free=1)


def decayed(suspect: Suspect) -> Guess:
    """Hypothesis: the gradient already includes weight decay, with a fitted λ."""
    weights = suspect.scene.weights
    decay = fit([(seen - g, weights(step)[n]) for step, n, seen, g in suspect.pairs()])

    def predict(step: int, rank: int) -> Arrays:
        return {n: g + decay * weights(step)[n] for n, g in suspect.right(step, rank).items()}

    return Guess("penalty-in-loss", predict, {"decay": decay}, free=1)


def left_out(suspect: Suspect) -> Iterator[Guess]:
    """Hypothesis: the gradients of some parameters are zero."""
    look = suspect.looks[0]
    names = [n for n, a in suspect.seen(*look).items() if a.size and not a.any()]
    if names and len(names) < len(suspect.right(*look)):

        def predict(step: int, rank: int) -> Arrays:
            return {n: np.zeros_like(suspect.right(step, rank)[n]) for n in names}

        yield Guess("frozen-parameters", predict, {"parameters": names})


def mean_of(suspect: Suspect, step: int, rank: int, part: int = 0, **changed: Any) -> Arrays:
    """Return the gradient of a rank's samples of update ``part`` (default: ``step``), weighted as
    in the sum over the ranks; for ``changed`` see `ReplayContext.gradient`."""
    scene, share = suspect.scene, suspect.share(step, rank)
    grads = scene.gradient(step, scene.part(part or step, rank), **changed)[1]
    return {n: share * g for n, g in grads.items()}


def stale(suspect: Suspect) -> Iterator[Guess]:
    """Hypothesis: the gradient is of the weights before the last update, or of the previous
    batch."""
    scene = suspect.scene

    def of_weights(step: int, rank: int) -> Arrays:
        if step - 1 not in scene.states:
            return {}
        return mean_of(suspect, step, rank, weights=scene.weights(step - 1))

    def of_batch(step: int, rank: int) -> Arrays:
        return {} if step == 1 else mean_of(suspect, step, rank, step - 1)

    yield Guess("stale-parameters", of_weights)
    yield Guess("stale-gradient", of_batch)


def other_loss(suspect: Suspect) -> Iterator[Guess]:
    """Hypothesis: the gradient is of another loss than the recorded one."""
    scene = suspect.scene
    for by in (1, -1):

        def shifted(step: int, rank: int, by: int = by) -> Arrays:
            index = scene.part(step, rank)
            classes = scene.logits(step, index)[0].shape[-1]
            labels = (scene.recipe.y[index] + by) % classes
            return mean_of(suspect, step, rank, labels=labels)

        yield Guess("shifted-labels", shifted, {"by": by})
    for name, loss in LOSSES.items():
        if name != scene.plan.experiment.loss:
            predict: Predict = lambda s, r, loss=loss: mean_of(suspect, s, r, loss=loss)  # noqa: E731
            yield Guess("other-loss", predict, {"is": name})


def turned(a: NDArray[Any]) -> NDArray[Any]:
    """Return a square matrix transposed, other arrays unchanged."""
    return a.T if a.ndim == 2 and a.shape[0] == a.shape[1] else a
