"""Smoothness of the loss curves."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dualml.common.words import Messages, numbers
from dualml.experiment.store.run import RunData, Trial
from dualml.report.columns import Columns, number
from dualml.report.measures import drop_missing, mean_over_trials, sort_by_value, trains_on_one_rank
from dualml.report.notes import Notes
from dualml.report.topics import table_section

#: Minimum number of changes of the loss for a standard deviation.
MIN_CHANGES = 3


def roughness(trial: Trial) -> float | None:
    """Return the standard deviation of the changes between recorded losses over the last half of
    the curve, divided by the mean loss there.

    None with fewer than three changes, which are too few for a standard deviation, or if the mean
    is 0.
    """
    curve = trial.curves.get("loss")
    if curve is None:
        return None
    half = curve.value[len(curve.value) // 2 :]
    half = half[np.isfinite(half)]
    if len(half) <= MIN_CHANGES or half.mean() == 0:
        return None
    return float(np.std(np.diff(half)) / abs(half.mean()))


def columns(run: RunData, words: Messages, main_arms: Sequence[str]) -> Columns[str]:
    """Return a column per backend of the roughness of the loss curves (`roughness`)."""
    heads = tuple(number(words, backend, backend, "relative") for backend in run.backends)
    return {
        "`arm`": lambda arm: arm,
        heads: lambda arm: [
            numbers.scientific(mean_over_trials(run, arm, b, roughness)) for b in run.backends
        ],
    }


def findings(notes: Notes, run: RunData, main_arms: Sequence[str]) -> None:
    """Add the roughness of each arm's loss curve, and the smoothest and the roughest arm."""
    arms = [arm for arm in run.main_arms() if run.select(arm)]
    rough = sort_by_value(
        drop_missing({arm: mean_over_trials(run, arm, None, roughness) for arm in arms})
    )
    if len(rough) > 1:
        (smoothest, low), *_, (roughest, high) = rough.items()
        notes.add(
            "contrast" if low > 0 else "zero",
            smooth=smoothest,
            rough=roughest,
            times=high / low if low > 0 else None,
        )
    if rough:
        notes.add("list", len(rough), values=rough)
    short = [arm for arm in arms if arm not in rough]
    if short:
        notes.add_warning("short", len(short), arms=short)
    if not arms:
        notes.add_warning("nothing")


TOPIC = table_section(
    "smoothness",
    110,
    reads=RunData.main_arms,
    columns=columns,
    findings=findings,
    priority=lambda run: 20,
    when=trains_on_one_rank,
)
