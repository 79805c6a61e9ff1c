"""The figures of samples dealt by different rules: curves, and differences with intervals."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from dualml.parity.statistics import MARGIN
from dualml.report import curves, numbers, style
from dualml.report.gaps import Gap, gap, signed
from dualml.report.model import Run
from dualml.report.sampling import Contest, contests
from dualml.report.style import Figure, Look, loss_unit
from dualml.report.words import Words


def colors(arms: Sequence[str], base: str = "") -> dict[str, str]:
    """Ten that can be told apart, black for the arm that the others are held to."""
    palette = [color for color, _ in style.STRATEGIES.values()]
    others = [a for a in arms if a != base]
    told = {a: palette[k % len(palette)] for k, a in enumerate(others)}
    return {a: told.get(a, "#111111") for a in arms}


def sampling_figures(run: Run, words: Words) -> Iterator[Figure]:
    look = Look(run)
    found = contests(run)
    for k, contest in enumerate(found):
        more = f"-{k + 1}" if len(found) > 1 else ""
        if any(t.curves for a in contest.arms for t in run.select(a)):
            yield _curves(run, words, look, contest, f"sampling{more}")
        gaps = {
            (arm, backend): g
            for arm in contest.others
            for backend in run.backends
            if (g := gap(run, arm, contest.base, backend)) is not None and g.kind != "few"
        }
        if gaps:
            yield _gaps(run, words, look, contest, gaps, f"sampling-gaps{more}")


def _curves(run: Run, words: Words, look: Look, contest: Contest, name: str) -> Figure:
    """Loss and test accuracy against updates, all arms and frameworks."""
    told = colors(contest.arms, contest.base)
    with style.canvas(style.WIDTH, 4.3) as made:
        grid = made.subplots(1, 2)
        for axes, metric in zip(grid, ("loss", "test_accuracy"), strict=True):
            scale, seen = (100.0 if metric == "test_accuracy" else 1.0), list[float]()
            for backend in look.order(run.backends):
                for arm in contest.arms:
                    line = curves.line(run.select(arm, backend), metric, "updates")
                    if line is not None:
                        kept = line.x > 0  # what is known before the first update says nothing
                        x, mean = curves.thin(line.x[kept], line.mean[kept])
                        axes.plot(x, scale * mean, **look.line(arm, backend, told[arm]))
                        seen += [float(v) for v in mean if np.isfinite(v)]
            if metric == "loss":
                style.log_if_wide(axes, seen)
            axes.set_xlim(left=0)
            axes.set_xlabel(words("axis.updates"))
            axes.set_ylabel(words(f"axis.{metric}", unit=loss_unit(run)))
        look.legend(made, told, run.backends, 5)
        text = style.svg(made, name)
    title = words("figure.sampling", group=words.either(f"group.{contest.group}", contest.group))
    notes = [title, words("figure.mean_line"), words("figure.base", arm=contest.base)]
    notes.append(words.plural("figure.mean_seeds", len(run.seeds), n=len(run.seeds)))
    finals = [
        f"{arm} {backend} {numbers.loss(end)}"
        for arm in contest.arms
        for backend in run.backends
        if (end := numbers.mean([t.final_loss for t in run.select(arm, backend)])) is not None
    ]
    alt = words("alt.training", title=title, finals=", ".join(finals) or numbers.NONE)
    return Figure(name, text, words.sentences(notes), alt)


def _gaps(
    run: Run,
    words: Words,
    look: Look,
    contest: Contest,
    gaps: Mapping[tuple[str, str], Gap],
    name: str,
) -> Figure:
    """Differences in test accuracy with their intervals, over the margin of equality."""
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    arms = [a for a in contest.others if any(arm == a for arm, _ in gaps)]
    shown = [b for b in look.order(run.backends) if any(backend == b for _, backend in gaps)]
    palette = {b: style.PALETTE[k % len(style.PALETTE)] for k, b in enumerate(shown)}
    with style.canvas(style.WIDTH, 1.3 + 0.36 * len(arms)) as made:
        axes: Any = made.subplots()
        axes.axvspan(-100 * MARGIN, 100 * MARGIN, color="#222222", alpha=0.08, linewidth=0)
        axes.axvline(0, color="#999999", linewidth=0.9)
        for y, arm in enumerate(arms):
            for k, backend in enumerate(shown):
                found = gaps.get((arm, backend))
                if found is not None:
                    at = y + 0.2 * (k - (len(shown) - 1) / 2)
                    axes.plot([100 * found.low, 100 * found.high], [at, at], linewidth=1.6,
                              color=palette[backend])  # fmt: skip
                    axes.plot(100 * found.mean, at, "o", markersize=5, color=palette[backend])
        axes.set_yticks(range(len(arms)), arms, fontsize=8.5)
        axes.set_ylim(len(arms) - 0.4, -0.6)
        axes.set_xlabel(words("axis.gap", arm=contest.base))
        handles: list[Any] = [Line2D([], [], color=c, marker="o", markersize=5, label=b)
                              for b, c in palette.items()]  # fmt: skip
        margin = words("figure.margin", margin=f"{100 * MARGIN:g}")
        handles.append(Patch(color="#222222", alpha=0.12, label=margin))
        made.legend(handles=handles, loc="outside upper left", ncols=5, handlelength=2.2)
        text = style.svg(made, name)
    told = [f"{arm} {backend} {signed(g.mean)}" for (arm, backend), g in gaps.items()]
    alt = words("alt.sampling_gaps", arm=contest.base, values=", ".join(told))
    return Figure(name, text, words("figure.sampling_gaps", arm=contest.base), alt)
