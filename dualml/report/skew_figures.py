"""The figures of skewed parts: accuracy of every class, and the distances between the ranks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from dualml.report import numbers, style
from dualml.report.deals import rule
from dualml.report.model import Array, Run
from dualml.report.partitions import heat, scale
from dualml.report.sampling_figures import colors
from dualml.report.skew import by_class, skewed, worst
from dualml.report.style import Figure, Look
from dualml.report.words import Words

MOST_COLUMNS = 3


def skew_figures(run: Run, words: Words) -> Iterator[Figure]:
    arms = skewed(run)
    if any(by_class(run.select(a)) for a in arms):
        yield _classes(run, words, [a for a in arms if by_class(run.select(a))])
    loose = [a for a in arms if any(t.apart for t in run.select(a))]
    if loose:
        yield _apart(run, words, loose)


def _classes(run: Run, words: Words, arms: Sequence[str]) -> Figure:
    """A panel for each backend: arms down, classes across."""
    shown = [b for b in run.backends if any(by_class(run.select(a, b)) for a in arms)]
    columns = min(MOST_COLUMNS, len(shown))
    rows = -(-len(shown) // columns)
    with style.canvas(style.WIDTH, rows * (0.85 + 0.25 * len(arms)) + 0.6) as made:
        grid = made.subplots(rows, columns, squeeze=False, sharey=True)
        for axes in grid.flat[len(shown) :]:
            axes.set_visible(False)
        for k, (axes, backend) in enumerate(zip(grid.flat, shown, strict=False)):
            found = [by_class(run.select(a, backend)) for a in arms]
            most = max(map(len, found))
            table = [[None if v is None else 100 * v for v in f] or [None] * most for f in found]
            mesh = heat(axes, [[*t, *[None] * (most - len(t))] for t in table], 100.0)
            axes.set_xticks([c + 0.5 for c in range(most)], [str(c) for c in range(most)])
            axes.set_yticks([y + 0.5 for y in range(len(arms))], arms)
            axes.set_title(backend)
            if k + columns >= len(shown):
                axes.set_xlabel(words("axis.class"))
        scale(made, mesh, grid, words("axis.class_accuracy"), 0.25 * len(arms) * rows)
        text = style.svg(made, "skew-classes")
    lowest = [
        f"{arm} {backend} {numbers.percent(low[1])} ({low[0]})"
        for arm in arms
        for backend in shown
        if (low := worst(run.select(arm, backend))) is not None
    ]
    seeds = words.plural("figure.mean_seeds", len(run.seeds), n=len(run.seeds))
    caption = words.sentences([words("figure.skew_classes"), seeds])
    return Figure("skew-classes", text, caption, words("alt.classes", values=", ".join(lowest)))


def _apart(run: Run, words: Words, arms: Sequence[str]) -> Figure:
    """Divergence and drift at every averaging: mean of the ranks, and the range over them."""
    look, plain = Look(run), [a for a in arms if rule(run, a) == "random_partition"]
    told = colors(arms, plain[0] if plain else "")
    shown = ["divergence"]
    if any(np.isfinite(_all(run, a, b)[:, 2]).any() for a in arms for b in run.backends):
        shown.append("drift")  # known from the second averaging on
    with style.canvas(style.WIDTH, 4.3) as made:
        grid = made.subplots(1, len(shown), squeeze=False)[0]
        for column, (axes, axis) in enumerate(zip(grid, shown, strict=True), start=1):
            seen: list[float] = []
            for arm in arms:
                for backend in look.order(run.backends):
                    seen += _band(axes, run, look, arm, backend, told[arm], column)
            axes.set_yscale("log")
            if seen:  # a rank that stands still is next to the average: its band leads far down
                axes.set_ylim(bottom=min(seen) / 2.5)
            axes.set_xlim(left=0)
            axes.set_xlabel(words("axis.updates"))
            axes.set_ylabel(words(f"axis.{axis}"))
        look.legend(made, told, run.backends, 5)
        text = style.svg(made, "divergence")
    ends = [
        f"{arm} {backend} {numbers.quantity(float(np.nanmean(rows[:, 1])))}"
        for arm in arms
        for backend in run.backends
        if len(rows := _all(run, arm, backend)) and np.isfinite(rows[:, 1]).any()
    ]
    notes = [words("figure.divergence")]
    notes.append(words.plural("figure.mean_seeds", len(run.seeds), n=len(run.seeds)))
    return Figure("divergence", text, words.sentences(notes),
                  words("alt.divergence", values=", ".join(ends)))  # fmt: skip


def _all(run: Run, arm: str, backend: str) -> Array:
    """Rows (update, divergence, drift) of every rank and seed, at updates that all seeds made."""
    trials = [t for t in run.select(arm, backend) if t.apart]
    if not trials:
        return np.zeros((0, 3))
    last = min(t.apart[0][-1, 0] for t in trials)
    rows: Array = np.concatenate([rows for t in trials for rows in t.apart])
    return np.asarray(rows[rows[:, 0] <= last])


def _band(
    axes: Any, run: Run, look: Look, arm: str, backend: str, color: str, column: int
) -> list[float]:
    """Returns the means."""
    rows = _all(run, arm, backend)
    rows = rows[np.isfinite(rows[:, column]) & (rows[:, column] > 0)]
    if not len(rows):
        return []
    steps = np.unique(rows[:, 0])
    at = [rows[rows[:, 0] == step, column] for step in steps]
    mark = {"marker": "o", "markersize": 3.5} if len(steps) < 3 else {}
    means = [float(v.mean()) for v in at]
    axes.plot(steps, means, **look.line(arm, backend, color), **mark)
    low, high = [v.min() for v in at], [v.max() for v in at]
    axes.fill_between(steps, low, high, color=color, alpha=0.07, linewidth=0)
    return means
