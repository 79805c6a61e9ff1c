"""Hypotheses about a gradient whose forward pass and loss are correct.

The gradient of a batch is the mean over its samples. Most errors are errors of weights: some
samples count twice, some not at all, and all may be scaled. The weights that fit best tell which.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dualml.algorithms.communicator.parts import part_lengths
from dualml.backend.reference.losses import LOSSES
from dualml.parity.finder.causes.base import (
    Arrays,
    Hypothesis,
    Observation,
    Predict,
    concat_flat,
    fit_factor,
    fit_weights,
    half_precision_tensors,
    scaled_tensors,
)
from dualml.parity.finder.causes.rank_weights import weights_of_ranks
from dualml.parity.finder.causes.relations import gradient_functions, tensor_factors
from dualml.parity.finder.causes.weights import sample_weights

#: Largest number of samples with separately fitted weights.
MAX_FITTED_SAMPLES = 256
#: (update, rank) → groups of the rank's samples.
Groups = Callable[[int, int], list[NDArray[Any]]]


def hypotheses(suspect: Observation) -> Iterator[Hypothesis]:
    """Yield the hypotheses about a gradient that deviates: scaled, weighted or left-out samples,
    ranks or tensors, old weights or batches, another loss, rounding, or a function of the right
    one."""
    yield from scaled_gradients(suspect)
    yield from fit_sample_weights(suspect)
    yield from fit_micro_batch_weights(suspect)
    yield from sample_weights(suspect)
    yield from weights_of_ranks(suspect)
    yield from gradient_functions(suspect)
    yield from tensor_factors(suspect)
    yield decayed_gradient(suspect)
    yield from zero_gradients(suspect)
    yield from stale_gradients(suspect)
    yield Hypothesis("not-zeroed", suspect.scale_all(2), {"factor": 2})
    yield from other_loss_gradients(suspect)
    yield from half_precision_tensors(suspect)
    yield Hypothesis("transposed-weight", suspect.transform_all(transpose_square))


def scaled_gradients(suspect: Observation) -> Iterator[Hypothesis]:
    """Yield the hypotheses that the whole gradient is scaled: by the number of samples, ranks or
    micro-batches, by −1, 0 or a fitted number."""
    scene, ranks, micro = suspect.scene, suspect.world_size, micro_batch_count(suspect)

    def samples(step: int, rank: int) -> Arrays:
        return suspect.scale_all(scene.recipe.y[scene.rank_indices(step, rank)].size)(step, rank)

    yield Hypothesis("sum-not-mean", samples, {"factor": "samples"})
    if ranks > 1:
        yield Hypothesis("sum-not-mean", suspect.scale_all(ranks), {"factor": "ranks"})
        yield Hypothesis("averaged-twice", suspect.scale_all(1 / ranks), {"factor": f"1/{ranks}"})
    if micro > 1:
        yield Hypothesis("sum-not-mean", suspect.scale_all(micro), {"factor": "micro-batches"})
    yield Hypothesis("flipped-sign", suspect.scale_all(-1), {"factor": -1})
    yield Hypothesis("frozen-parameters", suspect.scale_all(0), {"parameters": "all"})
    yield scaled_tensors(suspect, "scaled-gradient")


def micro_batch_count(suspect: Observation) -> int:
    """Return the number of micro-batches into which the observed arm divides the samples of an
    update; 1 if its model is not split over ranks."""
    split = suspect.scene.plan.splits.get(suspect.scene.arm_name)
    return split.micro_batches if split is not None else 1


def fit_group_weights(
    suspect: Observation, cause: str, groups: Groups, what: str
) -> Iterator[Hypothesis]:
    """Yield the hypothesis that groups of samples have other weights, which are fitted and rounded
    to multiples of 1/4.

    Nothing if all weights are equal, or if a gradient has another shape or is not finite.
    ``groups`` gives each group's positions in the rank's samples; ``what`` names them in the
    details.
    """

    def group_gradients(step: int, rank: int) -> list[Arrays]:
        """Return what each group adds to the gradient of all ranks."""
        index = suspect.scene.rank_indices(step, rank)
        each = [gradient for _, gradient in suspect.scene.sample_gradients(step, index)]
        scale = suspect.batch_share(step, rank) / len(index)
        return [
            {n: scale * sum(each[i][n] for i in group) for n in each[0]}
            for group in groups(step, rank)
        ]

    fitted: dict[tuple[int, int], NDArray[Any]] = {}
    for step, rank in suspect.violations:
        seen, right = suspect.recorded(step, rank), suspect.expected(step, rank)
        alike = {n: a.shape for n, a in seen.items()} == {n: a.shape for n, a in right.items()}
        if not alike or not all(np.isfinite(a).all() for a in seen.values()):
            return
        parts = group_gradients(step, rank)
        fitted[step, rank] = fit_weights(
            list(map(concat_flat, parts)), concat_flat({n: seen[n] for n in parts[0]})
        )

    def predict(step: int, rank: int) -> Arrays:
        if (step, rank) not in fitted:
            return {}
        parts = list(zip(fitted[step, rank], group_gradients(step, rank), strict=True))
        return {n: sum(weight * total[n] for weight, total in parts) for n in parts[0][1]}

    first = fitted[suspect.violations[0]]
    if len(set(first.tolist())) == 1:
        return  # equal weights: covered by scaled gradients
    usual = float(np.median(first))
    odd = [i for i, w in enumerate(first) if w != usual][:8]
    detail = {what: odd, "weights": [float(first[i]) for i in odd], "usual": usual}
    yield Hypothesis(cause, predict, detail, fitted_count=1)


def fit_sample_weights(suspect: Observation) -> Iterator[Hypothesis]:
    """Yield the hypothesis that some samples count twice, or not at all; nothing with more than
    MAX_FITTED_SAMPLES samples."""
    scene = suspect.scene
    if not all(
        0 < len(scene.rank_indices(s, r)) <= MAX_FITTED_SAMPLES for s, r in suspect.violations
    ):
        return

    def groups(step: int, rank: int) -> list[NDArray[Any]]:
        return [np.array([i]) for i in range(len(scene.rank_indices(step, rank)))]

    for guess in fit_group_weights(suspect, "dropped-samples", groups, "samples"):
        more = max(guess.detail["weights"]) > guess.detail["usual"]
        cause = "padded-duplicates" if more else "dropped-samples"
        yield Hypothesis(cause, guess.predict, guess.detail, 2)


def fit_micro_batch_weights(suspect: Observation) -> Iterator[Hypothesis]:
    """Yield the hypothesis that some micro-batches count twice, or not at all; nothing for a model
    that is not split, or with more than MAX_FITTED_SAMPLES samples."""
    scene, count = suspect.scene, micro_batch_count(suspect)
    if count == 1 or any(
        len(scene.rank_indices(s, r)) > MAX_FITTED_SAMPLES for s, r in suspect.violations
    ):
        return
    replicas = scene.plan.splits[scene.arm_name].mesh.data

    def groups(step: int, rank: int) -> list[NDArray[Any]]:
        shares = split_samples(np.arange(len(scene.rank_indices(step, rank))), replicas)
        return [group for share in shares for group in split_samples(share, count) if len(group)]

    yield from fit_group_weights(suspect, "lost-micro-batch", groups, "micro-batches")


def split_samples(samples: NDArray[Any], count: int) -> list[NDArray[Any]]:
    """Split samples into ``count`` nearly equal parts, in order."""
    return np.split(samples, np.cumsum(part_lengths(len(samples), count))[:-1])


def decayed_gradient(suspect: Observation) -> Hypothesis:
    """Return the hypothesis that the gradient already includes weight decay, with a fitted λ."""
    weights = suspect.scene.weights
    decay = fit_factor(
        [(seen - g, weights(step)[n]) for step, n, seen, g in suspect.comparable_tensors()]
    )

    def predict(step: int, rank: int) -> Arrays:
        return {n: g + decay * weights(step)[n] for n, g in suspect.expected(step, rank).items()}

    return Hypothesis("penalty-in-loss", predict, {"decay": decay}, fitted_count=1)


def zero_gradients(suspect: Observation) -> Iterator[Hypothesis]:
    """Yield the hypothesis that the gradients of those parameters are zero whose recorded ones are;
    nothing if these are none or all."""
    look = suspect.violations[0]
    names = [n for n, a in suspect.recorded(*look).items() if a.size and not a.any()]
    if names and len(names) < len(suspect.expected(*look)):

        def predict(step: int, rank: int) -> Arrays:
            return {n: np.zeros_like(suspect.expected(step, rank)[n]) for n in names}

        yield Hypothesis("frozen-parameters", predict, {"parameters": names})


def rank_gradient(
    suspect: Observation, step: int, rank: int, part: int = 0, **changed: Any
) -> Arrays:
    """Return the gradient of the samples that a rank has in update ``part`` (default: ``step``), at
    the weights before update ``step``, weighted as in the sum over the ranks; for ``changed`` see
    `ReplayContext.gradient`."""
    scene, share = suspect.scene, suspect.batch_share(step, rank)
    grads = scene.gradient(step, scene.rank_indices(part or step, rank), **changed)[1]
    return {n: share * g for n, g in grads.items()}


def stale_gradients(suspect: Observation) -> Iterator[Hypothesis]:
    """Yield the hypotheses that the gradient is of the weights before the last update, or of the
    previous batch with the current weights."""
    scene = suspect.scene

    def from_old_weights(step: int, rank: int) -> Arrays:
        if step - 1 not in scene.states:
            return {}
        return rank_gradient(suspect, step, rank, weights=scene.weights(step - 1))

    def from_old_batch(step: int, rank: int) -> Arrays:
        return {} if step == 1 else rank_gradient(suspect, step, rank, step - 1)

    yield Hypothesis("stale-parameters", from_old_weights)
    yield Hypothesis("stale-gradient", from_old_batch)


def other_loss_gradients(suspect: Observation) -> Iterator[Hypothesis]:
    """Yield the hypotheses that the gradient is of shifted labels, or of another loss than the
    recorded one."""
    scene = suspect.scene
    for by in (1, -1):

        def shifted(step: int, rank: int, by: int = by) -> Arrays:
            index = scene.rank_indices(step, rank)
            classes = scene.logits(step, index)[0].shape[-1]
            labels = (scene.recipe.y[index] + by) % classes
            return rank_gradient(suspect, step, rank, labels=labels)

        yield Hypothesis("shifted-labels", shifted, {"by": by})
    for name, loss in LOSSES.items():
        if name != scene.plan.experiment.loss:
            predict: Predict = lambda s, r, loss=loss: rank_gradient(suspect, s, r, loss=loss)  # noqa: E731
            yield Hypothesis("other-loss", predict, {"is": name})


def transpose_square(a: NDArray[Any]) -> NDArray[Any]:
    """Return a square matrix transposed, other arrays unchanged."""
    return a.T if a.ndim == 2 and a.shape[0] == a.shape[1] else a
