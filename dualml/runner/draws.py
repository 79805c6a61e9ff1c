"""The rounding envelope of a trial: perturbed runs of the first updates, compared and dropped."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from dualml.errors import UserError
from dualml.files import read_json, readable, write_json
from dualml.parity.envelope import PLAIN, Envelope, perturb
from dualml.runner.capture import Arrays, after, before

if TYPE_CHECKING:
    from dualml.runner.trial import Trial


def draw_envelope(trial: Trial) -> None:
    """Write ``envelope.json`` after each draw; draws that it already holds are not repeated."""
    path = trial.folder / "envelope.json"
    envelope = Envelope()
    with contextlib.suppress(UserError), readable(str(path)):  # draws that cannot be read: anew
        envelope = Envelope(read_json(path))
    trial.ranks.begin_draws()
    horizon = trial.schedule.trace[-1]
    draws = trial.plan.experiment.parity.draws
    for draw in range(envelope.draws, draws):
        trial.restart(dict(trial.initial))
        capture: Arrays = {}
        lazy = []
        for step in range(1, horizon + 1):
            moved = perturb(trial.training.weights(), trial.seed, draw, step)
            trial.training.load(dict(moved), trial.training.state(), step - 1)
            batch = trial.ranks.batch(step)
            if draw != PLAIN:
                batch = trial.ranks.shuffle(batch, trial.seed, draw, step)
            if step in trial.schedule.trace:
                capture.update(before(trial.training, step, batch, trial.probe)[0])
            lazy.append(trial.training.step(batch, step))
            if step in trial.schedule.trace:
                capture.update(after(trial.training, step))
            trial.emit(phase="envelope", done=draw * horizon + step, total=draws * horizon)
        envelope.add(trial.ranks.read(lazy), capture, trial.losses, trial.trace)
        if trial.ranks.rank == 0:
            write_json(path, envelope.describe())
