"""The cost of full-batch gradient descent, which has no randomness: gradients, accuracy, time."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import Any

import numpy as np

from dualml.common.words import numbers
from dualml.experiment.store.run import RunData, Trial
from dualml.report import curves, ranks
from dualml.report.measures import mean_over_trials, trains_on_one_rank
from dualml.report.notes import Notes
from dualml.report.topics import ReportSection


def common_epochs(run: RunData, arms: Sequence[str]) -> float | None:
    """Return the number of epochs that every successful trial of every arm completed, the smallest
    over the trials; None if one is unknown."""
    trials = [t for arm in arms for t in run.select(arm)]
    ends = [
        max((float(c.epochs[-1]) for c in t.curves.values() if len(c.epochs)), default=None)
        for t in trials
    ]
    return None if None in ends else min((end for end in ends if end is not None), default=None)


def findings(notes: Notes, run: RunData) -> None:
    """Add sentences that compare each full-batch arm with each other arm: gradients per update,
    and accuracy after equally many epochs; a warning if there are no arms of one kind."""
    arms = [arm for arm in run.main_arms() if run.select(arm)]
    full = [arm for arm in arms if all(t.full_batch for t in run.select(arm))]
    noisy = [arm for arm in arms if arm not in full]
    for gd, other in product(full, noisy):
        _compare(notes, run, gd, other)
    if not (full and noisy) and not ranks.is_distributed(run):
        notes.add_warning("no_full" if not full else "no_noisy")


def _compare(notes: Notes, run: RunData, gd: str, other: str) -> None:
    """Add full-batch descent ``gd`` compared with ``other``: gradients per update, and accuracy
    after equally many epochs."""
    every, batch = (mean_over_trials(run, arm, None, _gradients) for arm in (gd, other))
    if every and batch:
        notes.add("gradients", gd=gd, other=other, every=every, batch=batch, times=every / batch)
    epochs = common_epochs(run, [gd, other])
    ends = [_at_epoch(run, arm, epochs or 0.0) for arm in (gd, other)]
    if epochs is None or any(end["accuracy"] is None for end in ends):
        notes.add_warning("no_epochs", gd=gd, other=other)
    else:
        notes.add("same_epochs", epochs=epochs, gd=ends[0], other=ends[1])


def _gradients(t: Trial) -> float | None:
    """Return the number of per-sample gradients in an update, None if unknown."""
    return t.sample_gradients / t.updates if t.updates and t.sample_gradients else None


def _at_epoch(run: RunData, arm: str, epochs: float) -> dict[str, Any]:
    """Return ``arm``, ``accuracy`` (a fraction), ``updates`` and ``seconds`` of training at the
    last evaluation within ``epochs``: means over all backends and seeds; None for unknown numbers,
    0 for unknown updates."""
    last = [(t, curves.value_at_epochs(t, "test_accuracy", epochs)) for t in run.select(arm)]
    hits = [(t, *hit) for t, hit in last if hit is not None]
    seconds = numbers.mean([float(np.interp(at, *curves.update_times(t))) for t, _, at in hits])
    return {
        "arm": arm,
        "accuracy": numbers.mean([accuracy for _, accuracy, _ in hits]),
        "updates": round(numbers.mean([at for *_, at in hits]) or 0),
        "seconds": seconds or None,
    }


TOPIC = ReportSection(
    "determinism",
    120,
    lambda run, words: (),
    findings,
    "figure-main-epochs",
    priority=lambda run: 30,
    when=trains_on_one_rank,
)
