"""Hypotheses about a loss whose logits are correct."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dualml.finder.causes.base import HALVES, Arrays, Guess, Predict, Suspect, rounded, scaled
from dualml.reference.losses import LOSSES
from dualml.reference.types import Array, rows

Labels = NDArray[Any]
#: A loss function: (logits, labels) → value; its gradient is not needed here.
Value = Callable[[Array, Labels], float]
Change = tuple[str, Value, dict[str, Any]]


def guesses(suspect: Suspect) -> Iterator[Guess]:
    """Yield the hypotheses about the loss."""
    kind = suspect.scene.plan.experiment.loss
    right: Value = lambda out, y: LOSSES[kind](out, y)[0]  # noqa: E731
    own = CROSS_ENTROPY if kind == "cross_entropy" else MSE
    for cause, value, detail in (*own, *common(right)):
        yield Guess(cause, computed(suspect, value), detail)
    if suspect.scene.recipe.spec.dropouts:
        yield Guess("eval-mode", computed(suspect, right, masked=False))
    yield weight_penalty(suspect)
    yield scaled(suspect, "scaled-loss")


def computed(suspect: Suspect, value: Value, masked: bool = True) -> Predict:
    """Return the prediction of the recorded losses with another loss function.

    Args:
        value: the loss function.
        masked: whether dropout is active.
    """
    scene = suspect.scene

    def of(step: int, index: NDArray[np.int64]) -> float:
        if not len(index):
            return 0.0
        with np.errstate(all="ignore"):
            out = scene.logits(step, index)[0] if masked else scene.places(step, index)[-1].output
            return value(out, scene.recipe.y[index])

    def predict(step: int, rank: int) -> Arrays:
        parts = [part for part in scene.parts(step) if len(part)]
        whole = sum(map(len, parts))
        values = {"batch": sum(of(step, part) * len(part) / whole for part in parts)}
        if len(scene.parts(step)) > 1:
            values["rank"] = of(step, scene.part(step, rank))
        return {name: np.array([number]) for name, number in values.items()}

    return predict


def common(right: Value) -> Iterator[Change]:
    """Yield changes that apply to any loss."""

    def labels_by(by: int) -> Value:
        return lambda out, y: right(out, (y + by) % out.shape[-1])

    def kept(keep: slice) -> Value:
        return lambda out, y: right(out[keep], y[keep]) if len(y) > 1 else 0.0

    def ignoring(number: int) -> Value:
        def value(out: Array, y: Labels) -> float:
            keep = y.ravel() != number
            return right(rows(out)[keep], y.ravel()[keep]) if keep.any() else 0.0

        return value

    for by in (1, -1):
        yield "shifted-labels", labels_by(by), {"by": by}
        yield "rolled-labels", lambda out, y, by=by: right(out, np.roll(y, by, axis=0)), {"by": by}
    yield "sum-not-mean", lambda out, y: right(out, y) * y.size, {"factor": "samples"}
    yield "sum-not-mean", lambda out, y: right(out, y) * out.shape[-1], {"factor": "classes"}
    yield "mean-over-classes", lambda out, y: right(out, y) / out.shape[-1], {}
    yield "dropped-samples", kept(slice(None, -1)), {"dropped": "last"}
    yield "dropped-samples", kept(slice(1, None)), {"dropped": "first"}
    yield "padded-duplicates", lambda out, y: right(np.r_[out, out[-1:]], np.r_[y, y[-1:]]), {}
    for kind in HALVES:
        yield "half-precision", lambda out, y, k=kind: right(rounded(out, k), y), {"type": kind}
    for number in range(10):
        yield "ignored-class", ignoring(number), {"class": number}


def log_softmax(out: Array) -> Array:
    """Return the logarithm of the softmax of logits."""
    z = out - out.max(-1, keepdims=True)
    log: Array = z - np.log(np.exp(z).sum(-1, keepdims=True))
    return log


def likelihood(log: Array, y: Labels) -> float:
    """Return the negative log-likelihood of the labels, averaged."""
    return float(-rows(log)[np.arange(y.size), y.ravel()].mean())


def smoothed(share: float) -> Value:
    """Return the cross-entropy with label smoothing."""

    def value(out: Array, y: Labels) -> float:
        log = log_softmax(out)
        return (1 - share) * likelihood(log, y) - share * float(log.mean())

    return value


def to_base(base: int) -> Value:
    """Return the cross-entropy with the logarithm to another base."""
    return lambda out, y: likelihood(log_softmax(out), y) / float(np.log(base))


def one_hot(out: Array, y: Labels) -> Array:
    """Return the labels as one-hot vectors."""
    hot: Array = np.eye(out.shape[-1])[y.ravel()]
    return hot


def binary(out: Array, y: Labels) -> float:
    """Return the binary cross-entropy of every class separately, averaged."""
    return float((np.logaddexp(0, rows(out)) - one_hot(out, y) * rows(out)).mean())


def error(out: Array, y: Labels) -> Array:
    """Return the logits minus the one-hot labels."""
    return rows(out) - one_hot(out, y)


CROSS_ENTROPY: list[Change] = [
    # Softmax before a loss that already includes one.
    ("softmax-twice", lambda out, y: likelihood(log_softmax(np.exp(log_softmax(out))), y), {}),
    *(("label-smoothing", smoothed(part), {"smoothing": part}) for part in (0.1, 0.05, 0.2, 0.01)),
    *(("other-logarithm", to_base(base), {"base": base}) for base in (2, 10)),
    ("other-loss", lambda out, y: LOSSES["mse"](out, y)[0], {"is": "mse"}),
    ("no-softmax", likelihood, {}),
    ("binary-cross-entropy", binary, {}),
]
MSE: list[Change] = [
    ("halved-loss", lambda out, y: float((error(out, y) ** 2).mean() / 2), {"factor": 0.5}),
    ("other-loss", lambda out, y: LOSSES["cross_entropy"](out, y)[0], {"is": "cross_entropy"}),
    ("other-loss", lambda out, y: float(np.abs(error(out, y)).mean()), {"is": "l1"}),
    ("other-loss", lambda out, y: float(np.sqrt((error(out, y) ** 2).mean())), {"is": "root"}),
]


def weight_penalty(suspect: Suspect) -> Guess:
    """Hypothesis: the loss includes λ/2 ‖θ‖², with a fitted λ."""

    def norm(step: int) -> float:
        return sum(float(np.square(w).sum()) for w in suspect.scene.weights(step).values()) / 2

    up = down = 0.0
    for step, rank in suspect.looks:
        seen, right = suspect.seen(step, rank), suspect.right(step, rank)
        up += float(seen["batch"][0] - right["batch"][0]) * norm(step)
        down += norm(step) ** 2
    decay = up / down if down else 0.0

    def predict(step: int, rank: int) -> Arrays:
        return suspect.each(lambda a: a + decay * norm(step))(step, rank)

    return Guess("penalty-in-loss", predict, {"decay": decay}, free=1)
