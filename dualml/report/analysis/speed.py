"""Seconds of the frameworks against each other, on the same machine only."""

from __future__ import annotations

from itertools import combinations
from statistics import median

from dualml.report import numbers
from dualml.report.analysis.base import Finding, Notes, frameworks, ran
from dualml.report.model import Run
from dualml.report.words import Words


def ratio(run: Run, arm: str, a: str, b: str) -> float | None:
    """Median over seeds of train_s of ``b`` over that of ``a``."""
    mine = {t.seed: t.train_s for t in run.select(arm, a)}
    pairs = [(mine.get(t.seed), t.train_s) for t in run.select(arm, b)]
    ratios = [y / x for x, y in pairs if x and y]
    return median(ratios) if ratios else None


def speed(run: Run, words: Words) -> list[Finding]:
    notes = Notes(words, "speed")
    arms = ran(run, run.main_arms())
    shown = frameworks(run)
    if len(shown) < 2:
        notes.warn("single")
        return notes
    for a, b in combinations(shown, 2):
        ratios = {arm: r for arm in arms if (r := ratio(run, arm, a, b)) is not None}
        if not ratios:
            notes.warn("no_pair", a=a, b=b)
            continue
        fast, slow = (a, b) if median(ratios.values()) >= 1 else (b, a)
        listed = [
            words("say.speed.item", arm=arm, times=numbers.factor(r if fast == a else 1 / r))
            for arm, r in ratios.items()
        ]
        notes.say("ratio", slow=slow, fast=fast, values=words.join(listed))
    for backend in shown:
        outside = numbers.mean(
            [
                t.wall_s - t.train_s
                for arm in arms
                for t in run.select(arm, backend)
                if t.wall_s is not None and t.train_s is not None
            ]
        )
        if outside is not None:
            notes.say("outside", backend=backend, seconds=words.count("second", outside))
    if len(run.folders) > 1:
        notes.warn("machines", n=len(run.folders))
    return notes
