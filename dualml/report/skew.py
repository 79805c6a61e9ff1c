"""Skewed parts: what each arm learned of every class, and how far its ranks drifted apart."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dualml.report import numbers, ranks
from dualml.report.cells import Cell, Table, heads, number, percent
from dualml.report.deals import SKEWED, deal_of, dealt, partition, rule, told
from dualml.report.gaps import accuracies, plus_minus
from dualml.report.model import Run, Trial
from dualml.report.spread import spread
from dualml.report.words import Words


def skewed(run: Run) -> list[str]:
    """Arms with a partition, of groups in which ranks differ in labels or features by intention
    and arms differ in their partition or let their ranks differ between averages; least first."""
    found: list[str] = []
    for arms in run.groups().values():
        mine = [a for a in dealt(run) if a in arms]
        rules = {told(partition(run, a)) for a in mine}
        loose = any(t.apart for a in mine for t in run.select(a))
        if any(rule(run, a) in SKEWED for a in mine) and (len(rules) > 1 or loose):
            found += mine
    return sorted(found, key=lambda a: (emd(run, a) is None, round(emd(run, a) or 0.0, 2)))


def emd(run: Run, arm: str) -> float | None:
    """Of the labels, mean over ranks, epochs and seeds."""
    deal = deal_of(run, arm)
    return deal.skew()[0] if deal is not None else None


def combined(run: Run, arm: str, words: Words) -> str:
    """``gradients`` or ``parameters, every 16``, in one line."""
    set_up = ranks.aggregation(run, arm)
    of = words.either(f"of.{set_up['of']}", str(set_up["of"]))
    if set_up["of"] != "parameters":
        return of
    text = words("value.averaged", of=of, every=set_up["every"])
    return text.replace(" ", "\N{NO-BREAK SPACE}")


def apart(trials: Sequence[Trial]) -> tuple[float | None, float | None]:
    """Mean divergence and drift over averagings, ranks and seeds."""
    found = [np.concatenate(t.apart) for t in trials if t.apart]
    if not found:
        return None, None
    rows = np.concatenate(found)
    means = [rows[np.isfinite(rows[:, k]), k] for k in (1, 2)]
    divergence, drift = (float(v.mean()) if len(v) else None for v in means)
    return divergence, drift


def by_class(trials: Sequence[Trial]) -> list[float | None]:
    """Test accuracy of each class, mean over the seeds; None where there is no sample of it."""
    known = [t.class_accuracy for t in trials if t.class_accuracy]
    if not known:
        return []
    return [numbers.mean([c[k] for c in known]) for k in range(min(map(len, known)))]


def worst(trials: Sequence[Trial]) -> tuple[int, float] | None:
    """The class with the lowest accuracy."""
    known = [(v, k) for k, v in enumerate(by_class(trials)) if v is not None]
    return (min(known)[1], min(known)[0]) if known else None


def skew_table(run: Run, words: Words) -> Table | None:
    rows = [
        _row(run, words, arm, backend)
        for arm in skewed(run)
        for backend in run.backends
        if run.select(arm, backend)
    ]
    if not rows:
        return None
    head = heads(
        words,
        *("arm", "partition", "of", "backend", "emd:1", "test_accuracy:percent"),
        *("worst_class:percent", "divergence:relative", "drift:relative"),
    )
    return Table("skew", words("table.skew"), head, rows)


def _row(run: Run, words: Words, arm: str, backend: str) -> list[Cell]:
    trials, far = run.select(arm, backend), emd(run, arm)
    low = worst(trials)
    note = "" if low is None else words("value.class", label=low[0])
    return [
        Cell(arm, "code"),
        Cell(told(partition(run, arm)), "code"),
        Cell(combined(run, arm, words)),
        Cell(backend),
        number(numbers.NONE if far is None else f"{far:.3f}"),
        plus_minus(spread(accuracies(run, arm, backend).values()), 100.0, 2),
        Cell(percent(low[1] if low else None), "number", note=note),
        *(number(numbers.quantity(v)) for v in apart(trials)),
    ]
