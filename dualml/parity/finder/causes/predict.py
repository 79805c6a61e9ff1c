"""Predict an update from changed inputs, or with a changed rule."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from dualml.parity.finder.causes.base import Arrays, Hypothesis, Observation, Predict
from dualml.parity.finder.causes.rules import Update, UpdateInputs, apply_rule

#: Function of (update, rank, recorded inputs) that returns changed inputs, or None if they are
#: unknown.
ChangeInputs = Callable[[int, int, UpdateInputs], UpdateInputs | None]


def changed_update(
    suspect: Observation, cause: str, update: Update, detail: dict[str, Any], cost: int = 0
) -> Hypothesis:
    """Return the hypothesis that ``update``, instead of the rule, is applied to the recorded
    inputs; it predicts weights and state."""
    predict: PredictFor = lambda other: predict_with(other, update)  # noqa: E731
    return both_phases(suspect, cause, predict, detail, update=update, cost=cost)


#: Observation of an update, or of its state → prediction of the same phase.
PredictFor = Callable[[Observation], Predict]


def both_phases(
    suspect: Observation, cause: str, predict: PredictFor, detail: dict[str, Any], **more: Any
) -> Hypothesis:
    """Return a hypothesis about an update that has to explain its weights and its state.

    Args:
        predict: gives the prediction for an observation, in that observation's phase.
        more: further fields of `Hypothesis`.
    """
    other = "state" if suspect.phase == "update" else "update"
    also = {other: predict(dataclasses.replace(suspect, phase=other))}
    return Hypothesis(cause, predict(suspect), detail, also=also, **more)


def update_inputs(suspect: Observation, step: int, rank: int) -> UpdateInputs:
    """Return the inputs of an update: the common weights and state before it, and the backend's own
    gradients, or the reference's if they were not recorded."""
    scene = suspect.scene
    weights, state = scene.recorded_start(step)
    grads: Mapping[str, Any] = scene.own_gradient(suspect.backend, rank, step)
    for phase in ("aggregation", "gradient"):
        grads = grads or suspect.reference(step, rank, phase)
    grads = {n: grads[n] for n in weights if n in grads}
    return UpdateInputs(weights, grads, state, step, scene.recipe.learning_rate(step))


def predict_from(
    suspect: Observation, before: ChangeInputs, update: Update | None = None
) -> Predict:
    """Return a function of (update, rank) that predicts what ``update`` (default: the rule's) gives
    with changed inputs: the weights, or, if the observation is not of phase ``update``, the
    optimizer state. It gives no tensors where the inputs are unknown.

    Args:
        before: a function of (update, rank, recorded inputs) that returns the changed inputs, or
            None.
    """
    make = update or apply_rule(suspect.scene.arm.rule)

    def predict(step: int, rank: int) -> Arrays:
        start = update_inputs(suspect, step, rank)
        if start.g.keys() != start.p.keys():
            return {}
        changed = before(step, rank, start)
        if changed is None or changed.t < 1:
            return {}
        try:
            with np.errstate(all="ignore"):
                weights, state = make(changed)
        except KeyError:  # the rule needs more state than was recorded
            return {}
        if suspect.phase == "update":
            return weights
        return {f"{slot}/{n}": a for slot, named in state.items() for n, a in named.items()}

    return predict


def predict_with(suspect: Observation, update: Update) -> Predict:
    """Return a function of (update, rank) that predicts what a changed update gives with the
    recorded weights, gradients and state, see `predict_from`."""
    return predict_from(suspect, lambda step, rank, start: start, update)
