"""A strategy's schedule drawn: ranks as lines, steps as columns, every message as an arrow."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from dualml.report import ranks, style
from dualml.report.model import Run
from dualml.report.style import Figure
from dualml.report.words import Words

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from dualml.aggregation import Schedule

MOST = 8  # ranks that stay readable
THEN = {"add": "#0072B2", "put": "#D55E00"}
COLUMN = {False: 0.62, True: 0.9}  # inches of a step, wider where chunks are named


def schedules(run: Run, words: Words) -> Iterator[Figure]:
    """Every schedule this run's strategies follow, alike ones once."""
    from dualml.aggregation import STRATEGIES

    found: dict[Any, list[str]] = {}
    for name in ranks.strategies(run):
        if name in STRATEGIES:
            n = _ranks(run, name)
            schedule = STRATEGIES[name]().schedule(n)
            if schedule.steps:
                found.setdefault(schedule, []).append(name)
    for schedule, names in found.items():
        yield _figure(schedule, names, words)


def _ranks(run: Run, name: str) -> int:
    """The most ranks the run used the strategy with that can be drawn."""
    used = {
        ranks.size(run, arm)
        for arm in run.arms
        if ranks.strategy(run, arm) == name or name in (run.arms[arm].get("strategies") or ())
    }
    fit = [n for n in used if 1 < n <= MOST]
    return max(fit) if fit else 4


def _figure(schedule: Schedule, names: list[str], words: Words) -> Figure:
    n, steps = schedule.ranks, len(schedule.steps)
    name = f"schedule-{names[0].replace('_', '-')}"
    width = min(style.WIDTH, max(3.4, 1.0 + steps * COLUMN[schedule.chunks > 1]))
    with style.canvas(width, 0.95 + 0.34 * n) as made:
        axes = made.subplots()
        for rank in range(n):
            axes.plot([-0.1, steps + 0.1], [rank, rank], color="#BBBBBB", linewidth=0.9, zorder=1)
        for number, step in enumerate(schedule.steps):
            for t in step:
                _arrow(axes, number, t, schedule.chunks > 1)
        axes.set_ylim(n - 0.55, -0.45)
        axes.set_xlim(-0.1, steps + 0.1)
        axes.set_yticks(range(n), [str(r) for r in range(n)])
        axes.set_xticks([k + 0.5 for k in range(steps)], [str(k + 1) for k in range(steps)])
        axes.tick_params(length=0)
        axes.grid(visible=False)
        for k in range(1, steps):
            axes.axvline(k, color=style.GRID, linewidth=0.8, zorder=0)
        for side in axes.spines.values():
            side.set_visible(False)
        axes.set_xlabel(words("axis.step"))
        axes.set_ylabel(words("axis.rank"))
        _legend(made, schedule, words)
        text = style.svg(made, name)
    messages = sum(map(len, schedule.steps))
    alt = words(
        "alt.schedule",
        names=words.join(names),
        ranks=n,
        steps=words.count("step", steps),
        messages=words.count("message", messages),
    )
    key = "chunks" if schedule.chunks > 1 else "whole"
    caption = words(f"figure.schedule.{key}", names=words.join(names), n=n, k=schedule.chunks)
    return Figure(name, text, caption, alt, width)


def _arrow(axes: Axes, column: int, t: Any, named: bool) -> None:
    """From the sender's line to the receiver's, across the column of the step."""
    first = 0.12 if not named else 0.2 + 0.05 * (len(t.name) - 1)
    start, end = (column + first, t.source), (column + 0.9, t.target)
    color = THEN[t.then]
    axes.annotate(
        "",
        xy=end,
        xytext=start,
        arrowprops={"arrowstyle": "-|>", "color": color, "linewidth": 1.2, "shrinkA": 0,
                    "shrinkB": 1, "mutation_scale": 9},
    )  # fmt: skip
    axes.plot(*start, "o", color=color, markersize=3, zorder=3)
    if named:  # left of the dot, where no arrow passes
        axes.annotate(
            t.name,
            start,
            xytext=(-3.5, 0),
            textcoords="offset points",
            fontsize=7.5,
            color=color,
            ha="right",
            va="center",
            bbox={"boxstyle": "square,pad=0.08", "facecolor": "white", "linewidth": 0},
            zorder=4,
        )


def _legend(made: Any, schedule: Schedule, words: Words) -> None:
    from matplotlib.lines import Line2D

    used = {t.then for step in schedule.steps for t in step}
    handles = [
        Line2D([], [], color=color, linewidth=2, label=words(f"figure.then.{then}"))
        for then, color in THEN.items()
        if then in used
    ]
    made.legend(handles=handles, loc="outside upper left", ncols=2, handlelength=1.4)
