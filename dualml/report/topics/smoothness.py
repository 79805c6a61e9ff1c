"""Smoothness of the loss curves."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from dualml.report.blocks import Block, Item
from dualml.report.columns import number, table
from dualml.report.measures import alone, known, mean, rising
from dualml.report.notes import Notes
from dualml.report.topics import Topic
from dualml.store.run import Run, Trial
from dualml.words import Words, numbers

#: Minimum number of changes of the loss for a standard deviation.
FEWEST = 3


def roughness(trial: Trial) -> float | None:
    """Return the standard deviation of the loss's change per update over the last half of the
    curve, divided by the mean loss there.

    None with fewer than three changes, which are too few for a standard deviation.
    """
    curve = trial.curves.get("loss")
    if curve is None:
        return None
    half = curve.value[len(curve.value) // 2 :]
    half = half[np.isfinite(half)]
    if len(half) <= FEWEST or half.mean() == 0:
        return None
    return float(np.std(np.diff(half)) / abs(half.mean()))


def evidence(run: Run, words: Words) -> Iterator[Block]:
    """Yield a table with arms as rows and backends as columns."""
    rows = [
        [arm, *(numbers.scientific(mean(run, arm, b, roughness)) for b in run.backends)]
        for arm in run.main_arms()
    ]
    head = (number(words, backend, backend, "relative") for backend in run.backends)
    yield from table(words, "smoothness", ["`arm`", *head], rows)


def findings(run: Run, words: Words) -> Sequence[Item]:
    notes = Notes(words, "smoothness", "table-smoothness")
    arms = [arm for arm in run.main_arms() if run.select(arm)]
    rough = rising(known({arm: mean(run, arm, None, roughness) for arm in arms}))
    if len(rough) > 1:
        (smoothest, low), *_, (roughest, high) = rough.items()
        notes.say("contrast" if low > 0 else "zero", smooth=smoothest, rough=roughest,
                  times=high / low if low > 0 else None)  # fmt: skip
    if rough:
        notes.say("list", len(rough), values=rough)
    short = [arm for arm in arms if arm not in rough]
    if short:
        notes.warn("short", len(short), arms=short)
    if not arms:
        notes.warn("nothing")
    return notes


TOPIC = Topic("smoothness", 110, evidence, findings, leads=lambda run: 20, when=alone)
