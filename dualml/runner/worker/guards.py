"""Checks that end a trial: a diverged loss, weights that are not finite, a lost update."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dualml.algorithms.optim import OptimizerSpec
from dualml.common.errors import TrialError

DIVERGED = 1e3  # a loss that many times the first one will not come back

Arrays = Mapping[str, NDArray[Any]]


def divergence_remedy(rule: OptimizerSpec) -> str:
    """Return the advice for a diverged loss, part of an error message: a lower learning rate and,
    if the optimizer's ``eps`` is 0, a larger ``eps``."""
    lower = f"lower the learning rate (lr = {rule.lr:g})"
    return f"{lower}, or give eps a value above 0" if getattr(rule, "eps", 1) == 0 else lower


def check_losses(
    arm: str, rule: OptimizerSpec, losses: NDArray[np.float64], start: int, stop: int
) -> None:
    """Check the losses of the updates ``start + 1`` … ``stop``; that of update t is at index t − 1.

    Raises:
        TrialError: one is not finite, or exceeds `DIVERGED` times the first (or 0.001, if that is
            larger).
    """
    for step in range(start + 1, stop + 1):
        loss, first = float(losses[step - 1]), float(losses[0])
        if not math.isfinite(loss):
            raise TrialError(
                f"arm {arm}: the loss is {loss} at step {step}; {divergence_remedy(rule)}"
            )
        if loss > DIVERGED * max(first, 1e-3):
            raise TrialError(
                f"arm {arm}: the loss diverges, {loss:.3g} at step {step} after {first:.3g} at "
                f"step 1; {divergence_remedy(rule)}"
            )


def check_final(arm: str, rule: OptimizerSpec, metrics: Mapping[str, float], first: float) -> None:
    """Check ``train_loss`` and ``test_loss``, measured after the last update.

    Args:
        arm: name of the arm, for messages.
        rule: optimizer definition.
        metrics: metric → value.
        first: loss of the first batch.

    Raises:
        TrialError: one is not finite, or exceeds `DIVERGED` times ``first`` (or 0.001, if that is
            larger).
    """
    for metric in ("train_loss", "test_loss"):
        loss = metrics[metric]
        if not math.isfinite(loss):
            raise TrialError(
                f"arm {arm}: {metric} is {loss} after the last update; {divergence_remedy(rule)}"
            )
        if loss > DIVERGED * max(first, 1e-3):
            raise TrialError(
                f"arm {arm}: the loss diverges, {metric} is {loss:.3g} after the last update, "
                f"{first:.3g} before the first; {divergence_remedy(rule)}"
            )


def check_weights_changed(
    arm: str, rule: OptimizerSpec, before: Arrays, after: Arrays, step: int = 1
) -> None:
    """Check that update ``step`` (the first one, or the first that was not skipped) changed a
    weight.

    Raises:
        TrialError: it left every parameter as it was.
    """
    if all(np.array_equal(after[name], before[name]) for name in after):
        raise TrialError(
            f"arm {arm}: optimizer {rule.name} moved no parameter in step {step}; is lr = "
            f"{rule.lr:g} too small, or is the update lost?"
        )


def check_steps_applied(arm: str, updates: int, *, last: float, skipped: float) -> None:
    """Check, after a training with loss scaling, that at least one update was applied.

    Args:
        arm: name of the arm, for messages.
        updates: number of updates attempted.
        last: the loss scale at the end.
        skipped: number of updates skipped.

    Raises:
        TrialError: every update was skipped.
    """
    if skipped == updates:
        raise TrialError(
            f"arm {arm}: nothing was trained: {updates} of {updates} updates were skipped because "
            f"a gradient was not finite; the loss ended at a scale of {last:g}: a dynamic scale "
            "falls with each of them, ask for more updates; a fixed one is set lower by loss_scale"
        )


def check_loaded(arm: str, given: Arrays, held: Arrays) -> None:
    """Raise `TrialError` naming the parameters that the backend holds (``held``) with other values,
    in float32, than the initial weights ``given``, which were loaded into it."""
    wrong = [
        name
        for name, w in given.items()
        if not np.array_equal(np.asarray(held[name], np.float32), np.asarray(w, np.float32))
    ]
    if wrong:
        raise TrialError(
            f"arm {arm}: the backend does not hold the plan's initial weights: {', '.join(wrong)} "
            "came back as other numbers than were loaded"
        )


def check_finite(arm: str, weights: Arrays) -> None:
    """Raise `TrialError` naming the tensors that hold a NaN or an infinity."""
    broken = [name for name, w in weights.items() if not np.isfinite(w).all()]
    if broken:
        raise TrialError(f"arm {arm}: not finite after training: {', '.join(broken)}")
