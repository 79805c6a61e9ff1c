"""The rounding envelope of a trial: perturbed runs of the first updates, compared and discarded."""

from __future__ import annotations

import contextlib
from functools import partial

import numpy as np
from numpy.typing import NDArray

from dualml.errors import UserError
from dualml.parity.envelope import PLAIN, Roundings, widened
from dualml.precision import cast_parameters
from dualml.store.envelope import Envelope, read_envelope, write_envelope
from dualml.worker.capture import Arrays, after, before
from dualml.worker.setup import Setup


def draw_envelope(trial: Setup, losses: NDArray[np.float64], trace: Arrays) -> None:
    """Draw perturbed runs and write ``envelope.json`` after each; draws already in the file are
    kept.

    Args:
        trial: the trial, already trained.
        losses, trace: recorded by the trial itself, unperturbed.
    """
    envelope = Envelope()
    with contextlib.suppress(UserError):  # draws that cannot be read: anew
        envelope = read_envelope(trial.folder) or envelope
    trial.ranks.begin_draws()
    horizon = trial.schedule.trace[-1]
    draws = trial.plan.experiment.parity.draws
    precision = trial.arm.plan_precision
    lower = cast_parameters(trial.spec.layers) if precision.lower else ()
    for draw in range(envelope.draws, draws):
        trial.restart(dict(trial.initial))
        capture: Arrays = {}
        lazy = []
        noise = Roundings(trial.seed, draw, precision.type, lower)
        for step in range(1, horizon + 1):
            trial.training.move(partial(noise.before, step=step))
            batch = trial.ranks.batch(step)
            if draw != PLAIN:
                batch = trial.ranks.shuffle(batch, trial.seed, draw, step)
            if step in trial.schedule.trace:
                capture.update(before(trial.training, step, batch, trial.probe)[0])
            lazy.append(trial.training.step(batch, step))
            if lower:
                trial.training.move(noise.after)
            if step in trial.schedule.trace:
                capture.update(after(trial.training, step))
            trial.emit(phase="envelope", done=draw * horizon + step, total=draws * horizon)
        envelope = widened(envelope, trial.ranks.read(lazy), capture, losses, trace)
        if trial.ranks.rank == 0:
            write_envelope(trial.folder, envelope)
