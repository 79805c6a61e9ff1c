"""Pipelines drawn: a rank's work as bars in time, a schedule as cells in ticks."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dualml.report import style
from dualml.report.style import Figure
from dualml.report.words import Words

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Canvas

    from dualml.split.schedule import Grid

#: (rank, label, kind, start, end), in seconds. A label like ``2F0`` names stage and micro-batch.
Row = tuple[int, str, str, float, float]

#: Darkest and lightest: a rank's first and last stage.
PASSES = {"F": ("#2E6DA4", "#A9CBE8"), "B": ("#C9651B", "#F5C596")}
#: What else a rank's time may go to, muted; in the order of the legend.
OTHERS = {
    "send": "#8E8E8E",
    "receive": "#DDD3BC",
    "collective": "#A897C4",
    "reduce": "#86B5A5",
    "update": "#5B5B5B",
}
STRIP = "#F1F1F1"  # behind the bars: where it shows, the rank idles
LANE, THIN = 0.74, 0.13  # heights of a bar and of a message below it, of the distance of ranks
INCHES = 0.36  # a rank
FONT = 7.5
DIGIT = 0.64 * FONT / 72  # inches


@dataclass(frozen=True)
class Bar:
    """``tone`` from 0, the darkest."""

    rank: int
    text: str
    kind: str
    start: float
    end: float
    tone: float = 0.0


def timeline_figure(
    name: str, rows: Iterable[Row], words: Words, *, caption: str | None = None
) -> Figure:
    """Ranks as lines, time in ms as x: passes with their micro-batch, what else was done muted,
    messages as thin bars below their sender, collectives inside a pass at its lower edge.

    Args:
        name: of the figure, unique on a page.
        rows: from a simulation (`Timeline.rows`) or a measurement; kinds ``F``, ``B`` and those of
            `OTHERS`. Time begins with the earliest.
        caption: instead of the usual one.
    """
    rows = list(rows)
    begin = min((row[3] for row in rows), default=0.0)
    bars = toned([(r, t, k, (a - begin) * 1e3, (b - begin) * 1e3) for r, t, k, a, b in rows])
    ranks = 1 + max((bar.rank for bar in bars), default=0)
    end = max((bar.end for bar in bars), default=0.0)
    idle = [1 - covered(bars, rank) / end if end else 0.0 for rank in range(ranks)]
    with style.canvas(style.WIDTH, 0.95 + INCHES * ranks) as made:
        axes = made.subplots()
        lanes(axes, ranks, end or 1.0, words)
        draw(axes, bars, (style.WIDTH - 1.6) / end if end else 1.0)
        axes.set_xlim(0, end or 1.0)
        axes.set_xlabel(words("pipeline.time"))
        beside(axes, [words("pipeline.idle", share=f"{100 * x:.0f}") for x in idle])
        legend(made, bars, words)
        svg = style.svg(made, name)
    alt = words("pipeline.alt.timeline", ms=f"{end:.3g}", values=told_idle(idle, words))
    return Figure(name, svg, caption or captioned("timeline", bars, words), alt)


def grid_figure(name: str, grid: Grid, words: Words, *, caption: str | None = None) -> Figure:
    """A schedule in unit ticks, with each rank's share of idle ticks and its live activations.

    Args:
        name: of the figure, unique on a page.
        grid: the schedule.
        caption: instead of the usual one.
    """
    bars = toned(
        (rank, str(action), action.kind, float(tick), tick + 1.0)
        for rank, row in enumerate(grid.rows)
        for tick, action in enumerate(row)
        if action is not None
    )
    idle = [1 - len(grid.program(rank)) / grid.ticks for rank in range(grid.ranks)]
    width = min(style.WIDTH, max(4.6, 2.3 + 0.3 * grid.ticks))
    with style.canvas(width, 0.95 + INCHES * grid.ranks) as made:
        axes = made.subplots()
        lanes(axes, grid.ranks, grid.ticks, words)
        draw(axes, bars, (width - 2.2) / grid.ticks)
        axes.set_xlim(0, grid.ticks)
        every = max(1, -(-grid.ticks // 20))
        marks = range(0, grid.ticks, every)
        axes.set_xticks([tick + 0.5 for tick in marks], [str(tick) for tick in marks])
        axes.grid(visible=False)
        axes.set_xlabel(words("pipeline.tick"))
        shares = [words("pipeline.idle", share=f"{100 * x:.0f}") for x in idle]
        live = [words("pipeline.live", n=grid.live(rank)) for rank in range(grid.ranks)]
        beside(axes, [f"{a} · {b}" for a, b in zip(shares, live, strict=True)])
        legend(made, bars, words)
        svg = style.svg(made, name)
    values = told_idle(idle, words)
    alt = words("pipeline.alt.grid", ranks=grid.ranks, ticks=grid.ticks, values=values)
    return Figure(name, svg, caption or captioned("grid", bars, words), alt, width)


def beside(axes: Axes, texts: Sequence[str]) -> None:
    """One text at the right end of each rank's line."""
    right = axes.secondary_yaxis("right")
    right.set_yticks(range(len(texts)), texts)
    right.tick_params(length=0, labelsize=FONT + 0.5)
    right.spines["right"].set_visible(False)


def toned(rows: Iterable[Row]) -> list[Bar]:
    """Bars with the micro-batch as their text and the tone of their stage among the rank's."""
    rows = list(rows)
    named = [re.fullmatch(r"(\d+)[FB](\d+)", text) for _, text, *_ in rows]
    stages: dict[int, set[int]] = {}
    for row, found in zip(rows, named, strict=True):
        if found and row[2] in PASSES:
            stages.setdefault(row[0], set()).add(int(found[1]))
    bars = []
    for (rank, text, kind, start, end), found in zip(rows, named, strict=True):
        tone = 0.0
        if found and kind in PASSES:
            mine = sorted(stages[rank])
            tone = mine.index(int(found[1])) / max(1, len(mine) - 1)
        bars.append(Bar(rank, found[2] if found else text, kind, start, end, tone))
    return bars


def covered(bars: Sequence[Bar], rank: int) -> float:
    """Time in which a rank works: not what it waits, nor what only travels."""
    spans = sorted(
        (b.start, b.end) for b in bars if b.rank == rank and b.kind not in ("send", "receive")
    )
    total = reached = 0.0
    for start, end in spans:  # collectives lie inside passes
        total += max(0.0, end - max(start, reached))
        reached = max(reached, end)
    return total


def lanes(axes: Axes, ranks: int, end: float, words: Words) -> None:
    for rank in range(ranks):
        axes.broken_barh([(0, end)], (rank - LANE / 2, LANE), facecolors=STRIP, zorder=1)
    axes.set_ylim(ranks - 0.42, -0.52)
    axes.set_yticks(range(ranks), [str(rank) for rank in range(ranks)])
    axes.set_ylabel(words("axis.rank"))
    axes.tick_params(axis="y", length=0)
    axes.grid(visible=False, axis="y")
    axes.spines["left"].set_visible(False)


def draw(axes: Axes, bars: Sequence[Bar], inches: float) -> None:
    """All bars; their text where it fits. ``inches``: of one unit of x."""
    alike: dict[tuple[int, str, float], list[Bar]] = {}
    for bar in bars:
        alike.setdefault((bar.rank, bar.kind, bar.tone), []).append(bar)
    for (rank, kind, tone), group in alike.items():
        spans = [(bar.start, bar.end - bar.start) for bar in group]
        low, height = _place(kind)
        axes.broken_barh(
            spans,
            (rank + low, height),
            facecolors=_color(kind, tone),
            edgecolors="white",
            linewidth=0.2 if kind == "send" else 0.5,
            zorder=3 if kind == "collective" else 2,
        )
    up = 0.09 if any(bar.kind == "collective" for bar in bars) else -0.02
    for bar in bars:
        if bar.kind in PASSES and (bar.end - bar.start) * inches > DIGIT * len(bar.text) + 0.03:
            axes.text(
                (bar.start + bar.end) / 2,
                bar.rank - up,
                bar.text,
                fontsize=FONT,
                color="white" if bar.tone < 0.5 else style.INK,
                ha="center",
                va="center",
                zorder=4,
            )


def _place(kind: str) -> tuple[float, float]:
    """Upper edge, from the middle of the rank's line, and height."""
    if kind == "send":
        return LANE / 2 + 0.015, THIN
    if kind == "collective":
        return LANE * 0.18, LANE * 0.32
    return -LANE / 2, LANE


def _color(kind: str, tone: float) -> str:
    """Of a pass between its darkest and its lightest; of anything else its own."""
    if kind not in PASSES:
        return OTHERS.get(kind, OTHERS["send"])
    dark, light = ([int(c[i : i + 2], 16) for i in (1, 3, 5)] for c in PASSES[kind])
    return "#" + "".join(
        f"{round(a + (b - a) * tone):02X}" for a, b in zip(dark, light, strict=True)
    )


def legend(made: Canvas, bars: Sequence[Bar], words: Words) -> None:
    """What was drawn, in one row above."""
    from matplotlib.patches import Patch

    used = {bar.kind for bar in bars}
    colors = {kind: _color(kind, 0.0) for kind in (*PASSES, *OTHERS) if kind in used}
    handles = [
        Patch(color=color, label=words(f"pipeline.kind.{kind}")) for kind, color in colors.items()
    ]
    nothing = words("pipeline.kind.nothing")
    handles.append(Patch(facecolor=STRIP, edgecolor="#CCCCCC", label=nothing))
    made.legend(
        handles=handles,
        loc="outside upper left",
        ncols=len(handles) if len(handles) < 7 else 4,
        handlelength=1.2,
        handleheight=0.9,
        columnspacing=1.4,
    )


def captioned(which: str, bars: Sequence[Bar], words: Words) -> str:
    told = [words(f"pipeline.caption.{which}")]
    if any(bar.tone for bar in bars):
        told.append(words("pipeline.caption.shades"))
    return words.sentences(told)


def told_idle(idle: Sequence[float], words: Words) -> str:
    return words.join(
        [words("pipeline.alt.rank", rank=r, share=f"{100 * x:.0f}") for r, x in enumerate(idle)]
    )
