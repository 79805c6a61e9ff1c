"""The cost of full-batch gradient descent, which has no randomness: gradients, accuracy, time."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import Any

import numpy as np

from dualml.report import curves, ranks
from dualml.report.blocks import Item
from dualml.report.measures import alone, mean
from dualml.report.notes import Notes
from dualml.report.topics import Topic
from dualml.store.run import Run, Trial
from dualml.words import Words, numbers


def common_epochs(run: Run, arms: Sequence[str]) -> float | None:
    """Return the number of epochs that every trial of every arm trained for; None if one is
    unknown."""
    trials = [t for arm in arms for t in run.select(arm)]
    ends = [
        max((float(c.epochs[-1]) for c in t.curves.values() if len(c.epochs)), default=None)
        for t in trials
    ]
    return None if None in ends else min((end for end in ends if end is not None), default=None)


def findings(run: Run, words: Words) -> Sequence[Item]:
    """Return sentences about the curves against epochs and updates."""
    notes = Notes(words, "determinism", "figure-main-epochs")
    arms = [arm for arm in run.main_arms() if run.select(arm)]
    full = [arm for arm in arms if all(t.full_batch for t in run.select(arm))]
    noisy = [arm for arm in arms if arm not in full]
    for gd, other in product(full, noisy):
        _compare(notes, run, gd, other)
    if not (full and noisy) and not ranks.distributed(run):
        notes.warn("no_full" if not full else "no_noisy")
    return notes


def _compare(notes: Notes, run: Run, gd: str, other: str) -> None:
    every, batch = (mean(run, arm, None, _gradients) for arm in (gd, other))
    if every and batch:
        notes.say("gradients", gd=gd, other=other, every=every, batch=batch, times=every / batch)
    epochs = common_epochs(run, [gd, other])
    ends = [_end(run, arm, epochs or 0.0) for arm in (gd, other)]
    if epochs is None or any(end["accuracy"] is None for end in ends):
        notes.warn("no_epochs", gd=gd, other=other)
    else:
        notes.say("same_epochs", epochs=epochs, gd=ends[0], other=ends[1])


def _gradients(t: Trial) -> float | None:
    """Return the number of per-sample gradients in an update, None if unknown."""
    return t.sample_gradients / t.updates if t.updates and t.sample_gradients else None


def _end(run: Run, arm: str, epochs: float) -> dict[str, Any]:
    """Return arm, accuracy, updates and seconds of the last evaluation within ``epochs``: means
    over all backends and seeds."""
    last = [(t, curves.at_epochs(t, "test_accuracy", epochs)) for t in run.select(arm)]
    hits = [(t, *hit) for t, hit in last if hit is not None]
    seconds = numbers.mean([float(np.interp(at, *curves.clock(t))) for t, _, at in hits])
    return {
        "arm": arm,
        "accuracy": numbers.mean([accuracy for _, accuracy, _ in hits]),
        "updates": round(numbers.mean([at for *_, at in hits]) or 0),
        "seconds": seconds or None,
    }


TOPIC = Topic("determinism", 120, lambda run, words: (), findings, lambda run: 30, when=alone)
