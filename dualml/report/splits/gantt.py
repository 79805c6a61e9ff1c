"""Gantt charts of ranks: measured updates in milliseconds, schedules in ticks."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

from dualml.common.words import Messages
from dualml.parallel.split.schedule import Grid
from dualml.report import legend
from dualml.report.figure import WIDTH, Axis, BoxMark, Figure, LegendEntry, Panel, SeriesId

#: Rank, label, kind (of `dualml.parallel.split.timeline.KINDS`), start and end in seconds. A label
#: like ``2F0`` names stage and micro-batch.
Row = tuple[int, str, str, float, float]

PASSES = ("F", "B")
IDLE = "nothing"  # the strip behind the bars
TOP = "collective"  # drawn above passes
PIXELS = 34.0  # height of a rank's row
LANE = 0.74  # height of a bar, relative to the row
#: Kind → top and height of thin marks: messages below the bar, collectives inside it.
THIN_MARKS = {"send": (LANE / 2 + 0.015, 0.13), "collective": (LANE * 0.28, LANE * 0.22)}


def timeline_figure(
    name: str,
    updates: Mapping[str, Iterable[Row]],
    words: Messages,
    *,
    caption: str = "",
    ranks: int = 0,
) -> Figure:
    """Return a figure with ranks as rows and milliseconds as x: passes with their micro-batch,
    messages as thin bars below their sender, collectives inside a pass at its lower edge.

    Args:
        name: name of the figure, unique on a page.
        updates: title of a panel → rows of a simulation (`Timeline.rows`) or a measurement; all
            panels share one time axis, each begins with its earliest row.
        words: the messages.
        caption: replaces the default caption.
        ranks: number of ranks; a rank without rows has no share of idle time.
    """
    shifted = {title: _milliseconds(list(rows)) for title, rows in updates.items()}
    every = [row for rows in shifted.values() for row in rows]
    n = max([ranks, *(1 + row[0] for row in every)])
    x = Axis(words("pipeline.time"), low=0, high=max((row[4] for row in every), default=1.0))
    panels, values = [], []
    for title, rows in shifted.items():
        end, there = max((row[4] for row in rows), default=1.0), {row[0] for row in rows}
        idle = [1 - busy_time(rows, rank) / end if rank in there else None for rank in range(n)]
        beside = [_format_share(share, words) for share in idle]
        panels.append(_panel(rows, end, beside, x, words, title))
        values.append((f"{title}: " if title else "") + _format_idle(idle, words))
    alt = words("pipeline.alt.timeline", ms=f"{x.high:.3g}", values=words.semicolons(values))
    caption = caption or _caption("timeline", panels, words)
    return Figure(name, caption, alt, panels, _keys(every, words), share_x="all")


def schedule_figure(name: str, grid: Grid, words: Messages, *, caption: str = "") -> Figure:
    """Return a figure of a schedule in unit ticks, with each rank's share of idle ticks and its
    number of live activations."""
    rows = [
        (rank, str(action), action.kind, float(tick), tick + 1.0)
        for rank, row in enumerate(grid.rows)
        for tick, action in enumerate(row)
        if action is not None
    ]
    idle = [1 - len(grid.program(rank)) / grid.ticks for rank in range(grid.ranks)]
    beside = [
        f"{_format_share(share, words)} · {words('pipeline.live', n=grid.live(rank))}"
        for rank, share in enumerate(idle)
    ]
    every = max(1, -(-grid.ticks // 20))
    ticks = [(tick + 0.5, str(tick)) for tick in range(0, grid.ticks, every)]
    x = Axis(words("pipeline.tick"), low=0, high=grid.ticks, ticks=ticks, grid=False)
    alt = words("pipeline.alt.grid", grid=grid, values=_format_idle(idle, words))
    panels = [_panel(rows, grid.ticks, beside, x, words)]
    return Figure(
        name,
        caption or _caption("grid", panels, words),
        alt,
        panels,
        _keys(rows, words),
        width=min(WIDTH, max(440.0, 220.0 + 29 * grid.ticks)),
    )


def _keys(rows: Iterable[Row], words: Messages) -> list[LegendEntry]:
    """Return the legend entries of the kinds of activity in the rows, and of idle time."""
    used = {IDLE, *(row[2] for row in rows)}
    return legend.series(words, "pipeline.kind", "activity", used)


def _panel(
    rows: Sequence[Row],
    end: float,
    beside: Sequence[str],
    x: Axis,
    words: Messages,
    title: str = "",
) -> Panel:
    """Return a panel with the rows of all ranks on strips of length ``end``, with one text at the
    right end of each."""
    names = [str(rank) for rank in range(len(beside))]
    strips = [
        BoxMark(0, k - LANE / 2, end, LANE, SeriesId(series=IDLE)) for k in range(len(beside))
    ]
    y = Axis(
        words("axis.rank"),
        low=-0.52,
        high=len(beside) - 0.42,
        names=names,
        beside=beside,
        grid=False,
    )
    return Panel([*strips, *_boxes(rows, words)], x, y, title, height=PIXELS * len(beside))


def _boxes(rows: Sequence[Row], words: Messages) -> Iterator[BoxMark]:
    """Yield the bars of all rows. A pass shows its micro-batch; its tone is its stage among those
    of its rank, from 0 for the first to 1 for the last."""
    matched = [(row, re.fullmatch(r"(\d+)[FB](\d+)", row[1])) for row in rows]
    stages: dict[int, set[int]] = {}
    for row, match in matched:
        if match:
            stages.setdefault(row[0], set()).add(int(match[1]))
    for (rank, text, kind, start, end), match in sorted(matched, key=lambda r: r[0][2] == TOP):
        own = sorted(stages.get(rank, ()))
        tone = own.index(int(match[1])) / max(1, len(own) - 1) if match else 0.0
        text, length = match[2] if match else text, end - start
        hint = f"{words(f'pipeline.kind.{kind}')} {text}".strip() + f";{length:.3g}"
        top, height = THIN_MARKS.get(kind, (-LANE / 2, LANE))
        inside = text if kind in PASSES else ""
        yield BoxMark(
            start, rank + top, length, height, SeriesId(series=kind), inside, tone, hint=hint
        )


def _milliseconds(rows: Sequence[Row]) -> list[Row]:
    """Convert seconds to milliseconds since the earliest row."""
    begin = min((row[3] for row in rows), default=0.0)
    return [(r, t, k, (a - begin) * 1e3, (b - begin) * 1e3) for r, t, k, a, b in rows]


def busy_time(rows: Iterable[Row], rank: int) -> float:
    """Return the time in which a rank works, in the unit of the rows, without waiting and message
    transfers; overlapping activities count once."""
    kept = (row for row in rows if row[0] == rank and row[2] not in ("send", "receive"))
    total = reached = 0.0
    for start, end in sorted(row[3:] for row in kept):  # collectives lie inside passes
        total += max(0.0, end - max(start, reached))
        reached = max(reached, end)
    return total


def _format_share(share: float | None, words: Messages) -> str:
    """Return a rank's share of idle time as text, a dash if unknown."""
    return "–" if share is None else words("pipeline.idle", share=f"{100 * share:.0f}")


def _caption(which: str, panels: Iterable[Panel], words: Messages) -> str:
    """Return the default caption ``pipeline.caption.WHICH``, with a sentence on shades if a mark is
    shaded."""
    shaded = any(getattr(mark, "tone", 0) for panel in panels for mark in panel.marks)
    shades = [words("pipeline.caption.shades")] if shaded else []
    return words.join_sentences([words(f"pipeline.caption.{which}"), *shades])


def _format_idle(idle: Sequence[float | None], words: Messages) -> str:
    """Return the known shares of idle time of all ranks as text for a figure's description."""
    known = [(rank, share) for rank, share in enumerate(idle) if share is not None]
    return words.join(
        [words("pipeline.alt.rank", rank=r, share=f"{100 * share:.0f}") for r, share in known]
    )
