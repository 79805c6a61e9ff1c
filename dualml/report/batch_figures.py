"""Larger batches: the loss against epochs, and the accuracy against the size of the batch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from dualml.report import curves, numbers, style
from dualml.report.batch import OTHER, SAME, SCALED, WARM, Batches, accuracies, batches, series
from dualml.report.model import Run
from dualml.report.spread import spread
from dualml.report.style import Figure, Look, loss_unit
from dualml.report.words import Words

LINK = "#8A8A8A"  # joins the points of arms that choose the step in the same way
MARKS = {SAME: "o", SCALED: "s", WARM: "^", OTHER: "D"}


def batch_figures(run: Run, words: Words) -> Iterator[Figure]:
    for k, told in enumerate(batches(run)):
        if any(run.select(arm.name) for arm in told.all):
            name = "large-batch" if k == 0 else f"large-batch-{k + 1}"
            yield _figure(run, words, told, name)


def _figure(run: Run, words: Words, told: Batches, name: str) -> Figure:
    look = Look(run)
    colors = {arm.name: style.PALETTE[k % len(style.PALETTE)] for k, arm in enumerate(told.all)}
    with style.canvas(style.WIDTH, 4.5) as made:
        left, right = made.subplots(1, 2, width_ratios=[1.15, 1])
        seen: list[float] = []
        for backend in look.order(run.backends):
            for arm in told.all:
                seen += _loss(left, run, look, arm.name, backend, colors[arm.name])
        if style.log_if_wide(left, seen, 5.0):
            for axis in (left.yaxis.set_major_formatter, left.yaxis.set_minor_formatter):
                axis(lambda v, _: f"{v:g}" if f"{v:e}"[0] in "125" else "")
        left.set_xlim(left=0)
        left.set_xlabel(words("axis.epochs"))
        left.set_ylabel(words("axis.loss", unit=loss_unit(run)))
        _accuracy(right, run, look, told, colors)
        right.set_xlabel(words("axis.batch_size") + words("axis.log"))
        right.set_ylabel(words("axis.test_accuracy"))
        _series_legend(right, words, told)
        look.legend(made, colors, [b for b in run.backends if b in look.strokes], 4)
        text = style.svg(made, name)
    notes = [words("figure.large_batch"), words("figure.mean_line"), words("figure.intervals")]
    alt = words("alt.large_batch", values=", ".join(_told(run, told)))
    return Figure(name, text, words.sentences(notes), alt)


def _loss(axes: Any, run: Run, look: Look, arm: str, backend: str, color: str) -> list[float]:
    line = curves.line(run.select(arm, backend), "loss", "epochs")
    if line is None:
        return []
    x, mean = curves.thin(line.x, line.mean)
    axes.plot(x, mean, **look.line(arm, backend, color))
    return [float(v) for v in mean]


def _accuracy(axes: Any, run: Run, look: Look, told: Batches, colors: Mapping[str, str]) -> None:
    """Points in the colour of their arm, joined where the step is chosen in the same way; backends
    side by side."""
    shown = look.order(run.backends)
    sizes = sorted({arm.batch for arm in told.all})
    for kind, arms in series(told).items():
        for k, backend in enumerate(shown):
            shift = 2 ** (0.08 * (k - (len(shown) - 1) / 2))
            points = []
            for arm in arms:
                found = spread(accuracies(run, arm, backend).values())
                if found is None:
                    continue
                at, color = arm.batch * shift, colors[arm.name]
                points.append((at, 100 * found.mean))
                mark = "o" if arm == told.base else MARKS[kind]
                axes.plot(*points[-1], mark, color=color, markersize=5.5, zorder=3)
                if found.low is not None and found.high is not None:
                    axes.plot([at, at], [100 * found.low, 100 * found.high], color=color,
                              linewidth=1.3, zorder=2)  # fmt: skip
            if points:
                axes.plot(*zip(*points, strict=True), **look.line("", backend, LINK), zorder=1)
    axes.set_xscale("log", base=2)
    axes.set_xticks(sizes, [f"{s:,}" for s in sizes])
    axes.set_xticks([], minor=True)


def _series_legend(axes: Any, words: Words, told: Batches) -> None:
    from matplotlib.lines import Line2D

    handles = [
        Line2D([], [], color=style.INK, marker=MARKS[kind], markersize=5.5, linewidth=0,
               label=words(f"batch.series.{kind}"))
        for kind in series(told)
    ]  # fmt: skip
    axes.legend(handles=handles, loc="best", fontsize=8.5, handlelength=1.0)


def _told(run: Run, told: Batches) -> list[str]:
    return [
        f"{arm.name} {backend} {numbers.percent(found.mean)}"
        for arm in told.all
        for backend in run.backends
        if (found := spread(accuracies(run, arm, backend).values())) is not None
    ]
