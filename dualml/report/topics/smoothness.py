"""How smooth each loss curve is."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from dualml.report.blocks import Block, Column, Item, Table
from dualml.report.columns import columns
from dualml.report.measures import alone
from dualml.report.notes import Notes
from dualml.report.topics import Topic
from dualml.store.run import Run, Trial
from dualml.words import Words, numbers

FEWEST = 3


def roughness(trial: Trial) -> float | None:
    """Standard deviation of the loss's change per update over the last half, over its mean there.

    None with fewer than three changes: a deviation of two says nothing.
    """
    curve = trial.curves.get("loss")
    if curve is None:
        return None
    half = curve.value[len(curve.value) // 2 :]
    half = half[np.isfinite(half)]
    if len(half) <= FEWEST or half.mean() == 0:
        return None
    return float(np.std(np.diff(half)) / abs(half.mean()))


def arm_roughness(run: Run, arm: str, backend: str | None = None) -> float | None:
    """Mean over the successful trials."""
    return numbers.mean([roughness(t) for t in run.select(arm, backend)])


def evidence(run: Run, words: Words) -> Iterator[Block]:
    """Arms down, backends across."""
    if alone(run):
        unit = words("unit.relative")
        across = [Column(backend, backend, unit, "number") for backend in run.backends]
        rows = [
            [arm, *(numbers.scientific(arm_roughness(run, arm, b)) for b in run.backends)]
            for arm in run.main_arms()
        ]
        shown = [*columns(words, "`arm`"), *across]
        yield Table("smoothness", words("table.smoothness"), shown, rows)


def findings(run: Run, words: Words) -> Sequence[Item]:
    notes = Notes(words, "smoothness", "table-smoothness")
    if not alone(run):
        return notes
    arms = [arm for arm in run.main_arms() if run.select(arm)]
    values = {arm: arm_roughness(run, arm) for arm in arms}
    known = {arm: v for arm, v in values.items() if v is not None}
    ordered = sorted(known, key=lambda arm: known[arm])
    if len(ordered) > 1:
        low, high = known[ordered[0]], known[ordered[-1]]
        times = {"times": numbers.factor(high / low)} if low > 0 else {}
        key = "contrast" if low > 0 else "zero"
        notes.say(key, smooth=ordered[0], rough=ordered[-1], **times)
    if ordered:
        listed = [f"{arm} {numbers.scientific(known[arm])}" for arm in ordered]
        notes.say("list", len(listed), values=words.join(listed))
    short = [arm for arm, v in values.items() if v is None]
    if short:
        notes.warn("short", len(short), arms=words.join(short))
    if not arms:
        notes.warn("nothing")
    return notes


TOPIC = Topic("smoothness", 110, evidence, findings, leads=lambda run: 20 if alone(run) else 0)
