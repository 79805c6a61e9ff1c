"""Hypotheses about a loss whose logits are correct."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from dualml.backend.reference.losses import LOSSES
from dualml.backend.reference.types import Array, as_matrix
from dualml.parity.finder.causes.base import (
    HALVES,
    Arrays,
    Hypothesis,
    Observation,
    Predict,
    scaled_tensors,
)
from dualml.parity.finder.causes.fitted_losses import (
    Change,
    Labels,
    Value,
    fitted_losses,
    negative_log_likelihood,
    smoothed_loss,
)
from dualml.parity.finder.causes.relations import nearest_simple
from dualml.parity.finder.causes.weights import sample_weights
from dualml.parity.finder.evaluation import residuals
from dualml.parity.transforms import log_softmax, round_to_half


def hypotheses(suspect: Observation) -> Iterator[Hypothesis]:
    """Yield the hypotheses about the loss. Where the gradient deviates, too, they have to explain
    it: a loss is one number, which much explains."""
    kind, follows = suspect.scene.plan.experiment.loss, gradient_deviates(suspect)
    right: Value = lambda out, y: LOSSES[kind](out, y)[0]  # noqa: E731
    own = CROSS_ENTROPY if kind == "cross_entropy" else MSE
    fitted = fitted_losses(suspect) if kind == "cross_entropy" else ()
    for cause, value, detail in (*own, *common_changes(right), *fitted):
        count = int("smoothing" in detail or "temperature" in detail)
        also = {"gradient": predict_gradient(suspect, value)} if follows else {}
        yield Hypothesis(cause, predict_loss(suspect, value), detail, count, also)
    if suspect.scene.recipe.spec.dropout_names:
        yield Hypothesis("eval-mode", predict_loss(suspect, right, masked=False))
    yield weight_penalty(suspect, follows)
    scaled = scaled_tensors(suspect, "scaled-loss")
    factor = nearest_simple(scaled.detail["factor"])
    yield Hypothesis(
        "scaled-loss",
        suspect.scale_all(factor),
        {"factor": factor},
        1,
        {"gradient": replace(suspect, phase="gradient").scale_all(factor)} if follows else {},
    )
    yield from sample_weights(suspect)


#: Most logits of a batch whose loss is differentiated numerically.
MAX_LOGITS = 4000
#: Step of the numerical derivative.
STEP = 1e-5


def gradient_deviates(suspect: Observation) -> bool:
    """Return whether the recorded gradient of the first deviating update deviates, too, and the
    logits are few enough (MAX_LOGITS) to differentiate the loss numerically."""
    here = replace(suspect, phase="gradient")
    step, rank = suspect.violations[0]
    pairs = residuals(here, step, rank, lambda s, r: {})
    logits = suspect.scene.logits(step, suspect.scene.rank_indices(step, rank))[0]
    return logits.size <= MAX_LOGITS and any(far > limit for _, far, limit in pairs)


def predict_gradient(suspect: Observation, value: Value) -> Predict:
    """Return a function of (update, rank) that predicts the gradient with another loss function,
    which is differentiated numerically."""
    scene = suspect.scene

    def loss(out: Array, y: Labels) -> tuple[float, Array]:
        flow = np.zeros_like(out)
        for at in np.ndindex(out.shape):
            up, down = out.copy(), out.copy()
            up[at] += STEP
            down[at] -= STEP
            flow[at] = (value(up, y) - value(down, y)) / (2 * STEP)
        return value(out, y), flow

    def predict(step: int, rank: int) -> Arrays:
        index = scene.rank_indices(step, rank)
        with np.errstate(all="ignore"):
            grads = scene.gradient(step, index, loss=loss)[1]
        return {n: suspect.batch_share(step, rank) * g for n, g in grads.items()}

    return predict


def predict_loss(suspect: Observation, value: Value, masked: bool = True) -> Predict:
    """Return a function of (update, rank) that predicts the recorded losses with another loss
    function: ``batch`` over all ranks, and ``rank`` if the ranks split the batch.

    Args:
        value: the loss function, averaging over its samples.
        masked: whether dropout is active.
    """
    scene = suspect.scene

    def mean_loss(step: int, index: NDArray[np.int64]) -> float:
        if not len(index):
            return 0.0
        with np.errstate(all="ignore"):
            out = scene.logits(step, index)[0] if masked else scene.layer_io(step, index)[-1].output
            return value(out, scene.recipe.y[index])

    def predict(step: int, rank: int) -> Arrays:
        parts = [part for part in scene.indices_by_rank(step) if len(part)]
        whole = sum(map(len, parts))
        values = {"batch": sum(mean_loss(step, part) * len(part) / whole for part in parts)}
        if len(scene.indices_by_rank(step)) > 1:
            values["rank"] = mean_loss(step, scene.rank_indices(step, rank))
        return {name: np.array([number]) for name, number in values.items()}

    return predict


def common_changes(right: Value) -> Iterator[Change]:
    """Yield (cause, changed loss, details): changes that apply to any loss."""

    def shift_labels(by: int) -> Value:
        return lambda out, y: right(out, (y + by) % out.shape[-1])

    def keep_samples(keep: slice) -> Value:
        return lambda out, y: right(out[keep], y[keep]) if len(y) > 1 else 0.0

    def ignore_class(number: int) -> Value:
        def value(out: Array, y: Labels) -> float:
            keep = y.ravel() != number
            return right(as_matrix(out)[keep], y.ravel()[keep]) if keep.any() else 0.0

        return value

    for by in (1, -1):
        yield "shifted-labels", shift_labels(by), {"by": by}
        yield "rolled-labels", lambda out, y, by=by: right(out, np.roll(y, by, axis=0)), {"by": by}
    yield "sum-not-mean", lambda out, y: right(out, y) * y.size, {"factor": "samples"}
    yield "sum-not-mean", lambda out, y: right(out, y) * out.shape[-1], {"factor": "classes"}
    yield "mean-over-classes", lambda out, y: right(out, y) / out.shape[-1], {}
    yield "dropped-samples", keep_samples(slice(None, -1)), {"dropped": "last"}
    yield "dropped-samples", keep_samples(slice(1, None)), {"dropped": "first"}
    yield "padded-duplicates", lambda out, y: right(np.r_[out, out[-1:]], np.r_[y, y[-1:]]), {}
    for kind in HALVES:
        yield (
            "half-precision",
            lambda out, y, k=kind: right(round_to_half(out, k), y),
            {"type": kind},
        )
    for number in range(10):
        yield "ignored-class", ignore_class(number), {"class": number}


def log_base_loss(base: int) -> Value:
    """Return a loss function: the cross-entropy with the logarithm to another base."""
    return lambda out, y: negative_log_likelihood(log_softmax(out), y) / float(np.log(base))


def one_hot(out: Array, y: Labels) -> Array:
    """Return the labels as one-hot rows, shape (labels, classes of ``out``)."""
    hot: Array = np.eye(out.shape[-1])[y.ravel()]
    return hot


def binary_cross_entropy(out: Array, y: Labels) -> float:
    """Return the binary cross-entropy of the logits with the one-hot labels, averaged over samples
    and classes."""
    return float((np.logaddexp(0, as_matrix(out)) - one_hot(out, y) * as_matrix(out)).mean())


def residual(out: Array, y: Labels) -> Array:
    """Return the logits minus the one-hot labels."""
    return as_matrix(out) - one_hot(out, y)


CROSS_ENTROPY: list[Change] = [
    # Softmax before a loss that already includes one.
    (
        "softmax-twice",
        lambda out, y: negative_log_likelihood(log_softmax(np.exp(log_softmax(out))), y),
        {},
    ),
    *(
        ("label-smoothing", smoothed_loss(part), {"smoothing": part})
        for part in (0.1, 0.05, 0.2, 0.01)
    ),
    *(("other-logarithm", log_base_loss(base), {"base": base}) for base in (2, 10)),
    ("other-loss", lambda out, y: LOSSES["mse"](out, y)[0], {"is": "mse"}),
    ("no-softmax", negative_log_likelihood, {}),
    ("binary-cross-entropy", binary_cross_entropy, {}),
]
MSE: list[Change] = [
    ("halved-loss", lambda out, y: float((residual(out, y) ** 2).mean() / 2), {"factor": 0.5}),
    ("other-loss", lambda out, y: LOSSES["cross_entropy"](out, y)[0], {"is": "cross_entropy"}),
    ("other-loss", lambda out, y: float(np.abs(residual(out, y)).mean()), {"is": "l1"}),
    ("other-loss", lambda out, y: float(np.sqrt((residual(out, y) ** 2).mean())), {"is": "root"}),
]


def weight_penalty(suspect: Observation, follows: bool) -> Hypothesis:
    """Return the hypothesis that the loss includes λ/2 ‖θ‖², with a fitted λ; ``follows``: and the
    gradient λθ."""
    graded = replace(suspect, phase="gradient")

    def norm(step: int) -> float:
        return sum(float(np.square(w).sum()) for w in suspect.scene.weights(step).values()) / 2

    up = down = 0.0
    for step, rank in suspect.violations:
        seen, right = suspect.recorded(step, rank), suspect.expected(step, rank)
        up += float(seen["batch"][0] - right["batch"][0]) * norm(step)
        down += norm(step) ** 2
    decay = up / down if down else 0.0

    def predict(step: int, rank: int) -> Arrays:
        return suspect.transform_all(lambda a: a + decay * norm(step))(step, rank)

    def gradient(step: int, rank: int) -> Arrays:
        w, share = suspect.scene.weights(step), suspect.batch_share(step, rank)
        return {n: g + share * decay * w[n] for n, g in graded.expected(step, rank).items()}

    also = {"gradient": gradient} if follows else {}
    return Hypothesis("penalty-in-loss", predict, {"decay": decay}, 1, also)
