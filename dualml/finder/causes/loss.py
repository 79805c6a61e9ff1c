"""What can be wrong with a loss whose logits are right."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dualml.finder.causes.base import Arrays, Guess, Suspect, rounded, scaled
from dualml.reference.losses import LOSSES
from dualml.reference.types import Array, rows

Labels = NDArray[Any]
#: An altered loss: (logits, labels) → value; its gradient is not needed here.
Value = Callable[[Array, Labels], float]


def guesses(suspect: Suspect) -> Iterator[Guess]:
    scene = suspect.scene
    kind = scene.plan.experiment.loss
    changes = [*(CROSS_ENTROPY if kind == "cross_entropy" else MSE), *common(suspect, kind)]
    for cause, value, detail in changes:
        yield Guess(cause, computed(suspect, value), detail)
    if scene.spec.dropouts:
        yield Guess("eval-mode", computed(suspect, LOSSES_OF[kind], masked=False))
    yield from weight_penalty(suspect)
    yield from scaled(suspect, "scaled-loss", {})


LOSSES_OF: dict[str, Value] = {
    name: (lambda out, y, loss=loss: loss(out, y)[0]) for name, loss in LOSSES.items()
}


def computed(suspect: Suspect, value: Value, masked: bool = True) -> Callable[[int, int], Arrays]:
    """All that is kept of the loss, had it been this one.

    Args:
        masked: whether Dropout does anything.
    """
    scene = suspect.scene

    def of(step: int, index: NDArray[np.int64]) -> float:
        if not len(index):
            return 0.0
        with np.errstate(all="ignore"):
            out = scene.logits(step, index)[0] if masked else scene.places(step, index)[-1].output
            return value(out, scene.y[index])

    def predict(step: int, rank: int) -> Arrays:
        parts = [part for part in scene.parts(step) if len(part)]
        whole = sum(len(part) for part in parts)
        found = {"batch": sum(of(step, part) * len(part) / whole for part in parts)}
        if len(scene.parts(step)) > 1:
            found["rank"] = of(step, scene.part(step, rank))
        return {name: np.array([told]) for name, told in found.items()}

    return predict


def common(suspect: Suspect, kind: str) -> list[tuple[str, Value, dict[str, Any]]]:
    """Whatever the loss is."""
    right: Any = LOSSES[kind]

    def with_labels(change: Callable[[Labels, int], Labels]) -> Value:
        return lambda out, y: right(out, change(y, out.shape[-1]))[0]

    found: list[tuple[str, Value, dict[str, Any]]] = []
    for by in (1, -1):
        found += [
            ("shifted-labels", with_labels(lambda y, k, by=by: (y + by) % k), {"by": by}),
            ("rolled-labels", with_labels(lambda y, k, by=by: np.roll(y, by, axis=0)), {"by": by}),
        ]
    found += [
        ("sum-not-mean", lambda out, y: right(out, y)[0] * y.size, {"factor": "samples"}),
        ("sum-not-mean", lambda out, y: right(out, y)[0] * out.shape[-1], {"factor": "classes"}),
        ("mean-over-classes", lambda out, y: right(out, y)[0] / out.shape[-1], {}),
        (
            "dropped-samples",
            lambda out, y: right(out[:-1], y[:-1])[0] if len(y) > 1 else 0.0,
            {"dropped": "last"},
        ),
        (
            "dropped-samples",
            lambda out, y: right(out[1:], y[1:])[0] if len(y) > 1 else 0.0,
            {"dropped": "first"},
        ),
        (
            "padded-duplicates",
            lambda out, y: right(np.concatenate([out, out[-1:]]), np.concatenate([y, y[-1:]]))[0],
            {},
        ),
    ]
    for half in ("float16", "bfloat16"):
        found.append(
            ("half-precision", lambda out, y, h=half: right(rounded(out, h), y)[0], {"type": half})
        )
    for number in range(10):
        found.append(
            (
                "ignored-class",
                lambda out, y, c=number: ignoring(right, out, y, c),
                {"class": number},
            )
        )
    return found


def ignoring(loss: Any, out: Array, y: Labels, number: int) -> float:
    keep = y.ravel() != number
    return float(loss(rows(out)[keep], y.ravel()[keep])[0]) if keep.any() else 0.0


def log_softmax(out: Array) -> Array:
    z = out - out.max(-1, keepdims=True)
    found: Array = z - np.log(np.exp(z).sum(-1, keepdims=True))
    return found


def picked(log: Array, y: Labels) -> Array:
    found: Array = rows(log)[np.arange(y.size), y.ravel()]
    return found


def smoothed(share: float) -> Value:
    def value(out: Array, y: Labels) -> float:
        log = log_softmax(out)
        return float(-((1 - share) * picked(log, y) + share * rows(log).mean(-1)).mean())

    return value


def to_base(base: int) -> Value:
    return lambda out, y: float(-picked(log_softmax(out), y).mean() / np.log(base))


def twice(out: Array, y: Labels) -> float:
    """A softmax before a loss that has one."""
    return float(-picked(log_softmax(np.exp(log_softmax(out))), y).mean())


CROSS_ENTROPY: list[tuple[str, Value, dict[str, Any]]] = [
    ("softmax-twice", twice, {}),
    *(("label-smoothing", smoothed(part), {"smoothing": part}) for part in (0.1, 0.05, 0.2, 0.01)),
    *(("other-logarithm", to_base(base), {"base": base}) for base in (2, 10)),
    ("other-loss", lambda out, y: float(LOSSES["mse"](out, y)[0]), {"is": "mse"}),
    ("no-softmax", lambda out, y: float(-picked(out, y).mean()), {}),
    ("binary-cross-entropy", lambda out, y: binary(out, y), {}),
]  # fmt: skip


def binary(out: Array, y: Labels) -> float:
    """Every class by itself."""
    target = np.zeros_like(rows(out))
    target[np.arange(y.size), y.ravel()] = 1
    z = rows(out)
    return float((np.logaddexp(0, z) - target * z).mean())


def squared(out: Array, y: Labels) -> Array:
    error = rows(out).copy()
    error[np.arange(y.size), y.ravel()] -= 1
    return error


MSE: list[tuple[str, Value, dict[str, Any]]] = [
    ("halved-loss", lambda out, y: float((squared(out, y) ** 2).mean() / 2), {"factor": 0.5}),
    (
        "other-loss",
        lambda out, y: float(LOSSES["cross_entropy"](out, y)[0]),
        {"is": "cross_entropy"},
    ),
    ("other-loss", lambda out, y: float(np.abs(squared(out, y)).mean()), {"is": "l1"}),
    ("other-loss", lambda out, y: float(np.sqrt((squared(out, y) ** 2).mean())), {"is": "root"}),
]


def weight_penalty(suspect: Suspect) -> Iterator[Guess]:
    """λ/2 ‖θ‖² added, with a λ that fits."""
    scene = suspect.scene

    def norm(step: int) -> float:
        return sum(float(np.square(w).sum()) for w in scene.weights(step).values()) / 2

    up = down = 0.0
    for step, rank in suspect.looks:
        seen, right = suspect.seen(step, rank), suspect.right(step, rank)
        up += float(seen["batch"][0] - right["batch"][0]) * norm(step)
        down += norm(step) ** 2
    decay = up / down if down else 0.0

    def predict(step: int, rank: int) -> Arrays:
        return {n: a + decay * norm(step) for n, a in suspect.right(step, rank).items()}

    yield Guess("penalty-in-loss", predict, {"decay": decay}, free=1)
