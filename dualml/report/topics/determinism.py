"""What it costs that gradient descent has no randomness: gradients, accuracy, time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from dualml.report import curves, ranks
from dualml.report.blocks import Block, Item
from dualml.report.measures import alone
from dualml.report.notes import Notes
from dualml.report.topics import Topic
from dualml.store.run import Run, Trial
from dualml.words import Words, numbers


def gradients_per_update(run: Run, arm: str) -> float | None:
    trials = run.select(arm)
    return numbers.mean(
        [t.sample_gradients / t.updates for t in trials if t.updates and t.sample_gradients]
    )


def length(trial: Trial) -> float | None:
    """Epochs the trial trained for."""
    ends = [float(c.epochs[-1]) for c in trial.curves.values() if len(c.epochs)]
    return max(ends, default=None)


def common_epochs(run: Run, arms: Sequence[str]) -> float | None:
    """Epochs that every arm reached."""
    ends = [length(t) for arm in arms for t in run.select(arm)]
    known = [e for e in ends if e is not None]
    return min(known) if known and len(known) == len(ends) else None


def evidence(run: Run, words: Words) -> Iterator[Block]:
    """The curves against epochs and updates show it."""
    yield from ()


def findings(run: Run, words: Words) -> Sequence[Item]:
    notes = Notes(words, "determinism", "figure-main-epochs")
    if not alone(run):
        return notes
    arms = [arm for arm in run.main_arms() if run.select(arm)]
    full = [a for a in arms if all(t.full_batch for t in run.select(a))]
    noisy = [a for a in arms if a not in full]
    for gd in full:
        for other in noisy:
            _compare(notes, run, gd, other)
    if not (full and noisy) and not ranks.distributed(run):
        notes.warn("no_full" if not full else "no_noisy")
    return notes


def _compare(notes: Notes, run: Run, gd: str, other: str) -> None:
    words = notes.words
    all_samples, batch = gradients_per_update(run, gd), gradients_per_update(run, other)
    if all_samples and batch:
        notes.say(
            "gradients",
            gd=gd,
            other=other,
            all_samples=words.count("gradient", all_samples),
            batch=words.count("gradient", batch),
            times=numbers.factor(all_samples / batch),
        )
    epochs = common_epochs(run, [gd, other])
    if epochs is None:
        notes.warn("no_epochs", gd=gd, other=other)
        return

    def mean(at: Callable[[Trial, float], float | None], arm: str) -> float | None:
        return numbers.mean([at(t, epochs) for t in run.select(arm)])

    if mean(_accuracy, gd) is None or mean(_accuracy, other) is None:
        notes.warn("no_epochs", gd=gd, other=other)
        return
    values: dict[str, str] = {}
    for name, arm in (("gd", gd), ("other", other)):
        seconds = mean(_seconds, arm)
        values |= {
            name: arm,
            f"{name}_updates": words.count("update", round(mean(_updates, arm) or 0)),
            f"{name}_accuracy": numbers.percent(mean(_accuracy, arm)),
            f"{name}_seconds": words.count("second", seconds if seconds else float("nan")),
        }
    notes.say("same_epochs", epochs=words.count("epoch", epochs), **values)


def _accuracy(trial: Trial, epochs: float) -> float | None:
    last = curves.at_epochs(trial, "test_accuracy", epochs)
    return last[0] if last else None


def _updates(trial: Trial, epochs: float) -> float | None:
    last = curves.at_epochs(trial, "test_accuracy", epochs)
    return last[1] if last else None


def _seconds(trial: Trial, epochs: float) -> float | None:
    update = _updates(trial, epochs)
    return None if update is None else float(np.interp(update, *curves.clock(trial)))


TOPIC = Topic("determinism", 120, evidence, findings, leads=lambda run: 30 if alone(run) else 0)
