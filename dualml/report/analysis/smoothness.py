"""How smooth each loss curve is."""

from __future__ import annotations

import numpy as np

from dualml.report import numbers
from dualml.report.analysis.base import Finding, Notes, ran
from dualml.report.model import Run, Trial
from dualml.report.words import Words

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


def smoothness(run: Run, words: Words) -> list[Finding]:
    notes = Notes(words, "smoothness")
    arms = ran(run, run.main_arms())
    values = {arm: arm_roughness(run, arm) for arm in arms}
    known = {arm: v for arm, v in values.items() if v is not None}
    if known:
        ordered = sorted(known, key=lambda arm: known[arm])
        listed = [f"{arm} {numbers.scientific(known[arm])}" for arm in ordered]
        notes.say("list", len(listed), values=words.join(listed))
        low, high = known[ordered[0]], known[ordered[-1]]
        if len(ordered) > 1 and low > 0:
            notes.say(
                "contrast", smooth=ordered[0], rough=ordered[-1], times=numbers.factor(high / low)
            )
        elif len(ordered) > 1:
            notes.say("zero", smooth=ordered[0], rough=ordered[-1])
    short = [arm for arm, v in values.items() if v is None]
    if short:
        notes.warn("short", len(short), arms=words.join(short))
    if not arms:
        notes.warn("nothing")
    return notes
