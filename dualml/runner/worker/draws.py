"""The rounding envelope of a trial: perturbed runs of the first updates, compared and discarded."""

from __future__ import annotations

import contextlib
from functools import partial

import numpy as np
from numpy.typing import NDArray

from dualml.algorithms.precision import cast_parameter_names
from dualml.common.errors import UserError
from dualml.experiment.store.envelope import Envelope, read_envelope, write_envelope
from dualml.parity.envelope import PLAIN, RoundingPerturbation, update_envelope
from dualml.runner.worker.capture import Arrays, trace_post_update, trace_pre_update
from dualml.runner.worker.setup import TrialSetup


def draw_envelope(trial: TrialSetup, losses: NDArray[np.float64], trace: Arrays) -> None:
    """Repeat the updates up to the last traced one with perturbed weights and (in all repetitions
    but one) with samples in another order, as often as the plan asks for, and measure the rounding
    envelope. Repetitions already in ``envelope.json`` are kept. All ranks call it; rank 0 writes
    the file after each. The model is left perturbed.

    Args:
        trial: the trial, already trained.
        losses, trace: recorded by the trial itself, unperturbed.
    """
    envelope = Envelope()
    with contextlib.suppress(UserError):  # draws that cannot be read: anew
        envelope = read_envelope(trial.folder) or envelope
    trial.trainer.begin_draws()
    horizon = trial.schedule.trace[-1]
    draws = trial.plan.experiment.parity.draws
    precision = trial.arm.plan_precision
    lower = cast_parameter_names(trial.spec.layers) if precision.is_low else ()
    for draw in range(envelope.draws, draws):
        trial.restart(dict(trial.initial))
        capture: Arrays = {}
        lazy = []
        noise = RoundingPerturbation(trial.seed, draw, precision.type, lower)
        for step in range(1, horizon + 1):
            trial.training.transform_weights(partial(noise.apply, step=step))
            batch = trial.ranks.batch(step)
            if draw != PLAIN:
                batch = trial.ranks.shuffle(batch, trial.seed, draw, step)
            if step in trial.schedule.trace:
                capture.update(trace_pre_update(trial.trainer, step, batch, trial.probe)[0])
            lazy.append(trial.trainer.step(batch, step))
            if lower:
                trial.training.transform_weights(noise.revert)
            if step in trial.schedule.trace:
                capture.update(trace_post_update(trial.trainer, step))
            trial.emit(phase="envelope", done=draw * horizon + step, total=draws * horizon)
        envelope = update_envelope(
            envelope, trial.trainer.mean_losses(lazy), capture, losses, trace
        )
        if trial.ranks.rank == 0:
            write_envelope(trial.folder, envelope)
