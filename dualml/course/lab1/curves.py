"""Training curves of a student's optimizers: softmax regression on handwritten digits, with the
rule.

The loss of a mini-batch is f(W, b) = −mean log softmax(xW + b)[y] (convex; Robbins & Monro's
setting without a network's chaos), so that a right optimizer stays within rounding of the rule.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from dualml.common.seeds import make_generator
from dualml.course.exercise import Array, Arrays, ExerciseCall
from dualml.course.lab1.hyperparameters import cast_hyperparameters
from dualml.course.lab1.rules import State
from dualml.course.lab1.trajectory import RULES
from dualml.experiment.data.dataset import normalised
from dualml.experiment.data.sources import load

SAMPLES, BATCH, UPDATES, CLASSES = 2000, 50, 80, 10
#: Learning rates with which each optimizer learns well here.
HYPER: dict[str, dict[str, Any]] = {
    "GD": {"lr": 0.05},
    "SGD": {"lr": 0.02, "momentum": 0.9, "weight_decay": 0.0, "nesterov": False},
    "Adam": {
        "lr": 0.003,
        "betas": [0.9, 0.999],
        "eps": 1e-8,
        "weight_decay": 0.0,
        "decoupled": False,
        "bias_correction": True,
    },
}
#: Tolerance of a right answer: this multiple of the float32 rule's own error, plus this constant.
ROUNDOFF_FACTOR, MIN_TOLERANCE = 30, 1e-5


def make_calls() -> tuple[list[ExerciseCall], str]:
    """Make one call for each optimizer, to train a linear classifier of `SAMPLES` images for
    `UPDATES` updates; return the calls and the name of the dataset."""
    data = load("mnist", explicit=False)
    draw = make_generator(0, "exercise", "curves")
    chosen = draw.permutation(len(data.train_y))[:SAMPLES]
    x = normalised(data.train_x[chosen], data.mean, data.std).reshape(len(chosen), -1)
    y = data.train_y[chosen].astype(np.int32)
    order = np.concatenate([draw.permutation(len(y)) for _ in range(UPDATES * BATCH // len(y) + 1)])
    arrays = {
        "x": x.astype(np.float32),
        "y": y,
        "order": order[: UPDATES * BATCH].reshape(UPDATES, BATCH).astype(np.int32),
        "weight": (0.01 * draw.normal(size=(x.shape[1], CLASSES))).astype(np.float32),
        "bias": np.zeros(CLASSES, np.float32),
    }
    made = [
        ExerciseCall("training", target, {"hyper": hyper, "whole": target == "GD"}, [arrays])
        for target, hyper in HYPER.items()
    ]
    return made, data.name


def reference_losses(call: ExerciseCall, number: type[np.floating[Any]] = np.float64) -> Array:
    """Compute the loss before each update by the rule, float64 of shape (UPDATES,); all arithmetic
    is in the dtype ``number``."""
    arrays, rule = call.arrays[0], RULES[call.target]
    h = cast_hyperparameters(call.options["hyper"], number)
    now = {name: arrays[name].astype(number) for name in ("weight", "bias")}
    states: dict[str, State] = {name: {} for name in now}
    out = []
    for step, batch in enumerate(batch_indices(call), 1):
        x, y = arrays["x"][batch].astype(number), arrays["y"][batch]
        logits = x @ now["weight"] + now["bias"]
        logits = logits - logits.max(1, keepdims=True)
        logs = logits - np.log(np.exp(logits).sum(1, keepdims=True))
        out.append(-logs[np.arange(len(y)), y].mean())
        d = np.exp(logs)
        d[np.arange(len(y)), y] -= 1
        d = d / number(len(y))
        for name, g in (("weight", x.T @ d), ("bias", d.sum(0))):
            now[name] = rule(now[name], g, states[name], step, h, frozenset())
    return np.array(out, np.float64)


def batch_indices(call: ExerciseCall) -> Array:
    """Return the samples that each update takes, shape (UPDATES, samples of an update); all of them
    for GD."""
    order = call.arrays[0]["order"]
    if call.options["whole"]:
        return np.tile(np.arange(len(call.arrays[0]["y"])), (len(order), 1))
    return order


def loss_tolerance(call: ExerciseCall, exact: Array) -> Array:
    """Return the tolerance of each update's loss ``exact``: the float32 rule's largest error so far
    times `ROUNDOFF_FACTOR`, plus `MIN_TOLERANCE`."""
    off = np.maximum.accumulate(np.abs(reference_losses(call, np.float32) - exact))
    return ROUNDOFF_FACTOR * off + MIN_TOLERANCE


def observed_losses(arrays: Arrays) -> Array:
    """Return the student's losses as float64."""
    return np.asarray(arrays["losses"], np.float64)
