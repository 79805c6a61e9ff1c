"""What it costs that gradient descent has no randomness: gradients, accuracy, time."""

from __future__ import annotations

import numpy as np

from dualml.report import curves, numbers
from dualml.report.analysis.base import Finding, Notes, ran
from dualml.report.model import Run, Trial
from dualml.report.words import Words


def gradients_per_update(run: Run, arm: str) -> float | None:
    return numbers.mean(
        [
            t.sample_gradients / t.updates
            for t in run.select(arm)
            if t.updates and t.sample_gradients
        ]
    )


def length(trial: Trial) -> float | None:
    """Epochs the trial trained for."""
    ends = [float(c.epochs[-1]) for c in trial.curves.values() if len(c.epochs)]
    return max(ends, default=None)


def common_epochs(run: Run, arms: list[str]) -> float | None:
    """Epochs that every arm reached."""
    ends = [length(t) for arm in arms for t in run.select(arm)]
    known = [e for e in ends if e is not None]
    return min(known) if known and len(known) == len(ends) else None


def determinism(run: Run, words: Words) -> list[Finding]:
    notes = Notes(words, "determinism")
    arms = ran(run, run.main_arms())
    full = [a for a in arms if all(t.full_batch for t in run.select(a))]
    noisy = [a for a in arms if a not in full]
    if not full or not noisy:
        notes.warn("no_full" if not full else "no_noisy")
        return notes
    for gd in full:
        for other in noisy:
            _compare(notes, run, words, gd, other)
    return notes


def _compare(notes: Notes, run: Run, words: Words, gd: str, other: str) -> None:
    mine, theirs = gradients_per_update(run, gd), gradients_per_update(run, other)
    if mine and theirs:
        notes.say(
            "gradients",
            gd=gd,
            other=other,
            mine=words.count("gradient", mine),
            theirs=words.count("gradient", theirs),
            times=numbers.factor(mine / theirs),
        )
    epochs = common_epochs(run, [gd, other])
    if epochs is None:
        notes.warn("no_epochs", gd=gd, other=other)
        return
    accuracy, made, seconds = (
        {arm: numbers.mean([at(t, epochs) for t in run.select(arm)]) for arm in (gd, other)}
        for at in (_accuracy, _updates, _seconds)
    )
    if accuracy[gd] is None or accuracy[other] is None:
        notes.warn("no_epochs", gd=gd, other=other)
        return
    notes.say(
        "same_epochs",
        epochs=words.count("epoch", epochs),
        gd=gd,
        gd_updates=words.count("update", round(made[gd] or 0)),
        gd_accuracy=numbers.percent(accuracy[gd]),
        other=other,
        other_updates=words.count("update", round(made[other] or 0)),
        other_accuracy=numbers.percent(accuracy[other]),
        gd_seconds=words.count("second", seconds[gd] or float("nan")),
        other_seconds=words.count("second", seconds[other] or float("nan")),
    )


def _accuracy(trial: Trial, epochs: float) -> float | None:
    found = curves.at_epochs(trial, "test_accuracy", epochs)
    return found[0] if found else None


def _updates(trial: Trial, epochs: float) -> float | None:
    found = curves.at_epochs(trial, "test_accuracy", epochs)
    return found[1] if found else None


def _seconds(trial: Trial, epochs: float) -> float | None:
    made = _updates(trial, epochs)
    if made is None:
        return None
    return float(np.interp(made, *curves.clock(trial)))
