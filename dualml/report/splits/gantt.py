"""Work of ranks over time as a figure: measured updates in milliseconds, schedules in ticks."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from dualml.report.figure import WIDTH, Axis, Box, Figure, Key, Owner, Panel
from dualml.split.schedule import Grid
from dualml.words import Words

#: Rank, label, kind (of `dualml.split.timeline.KINDS`), start and end in seconds. A label like
#: ``2F0`` names stage and micro-batch.
Row = tuple[int, str, str, float, float]

PASSES = ("F", "B")
IDLE = "nothing"  # the strip behind the bars
#: Where a rank's time may go → its colour, in the order of the legend.
COLORS = {
    "F": "forward",
    "B": "backward",
    "send": "ash",
    "receive": "sand",
    "collective": "lilac",
    "reduce": "sage",
    "update": "grey",
    IDLE: "strip",
}
PIXELS = 34.0  # a rank
LANE = 0.74  # height of a bar, of the distance of ranks
#: Kind → top and height of what is no bar: messages are thin below it, collectives inside it.
INSIDE = {"send": (LANE / 2 + 0.015, 0.13), "collective": (LANE * 0.28, LANE * 0.22)}


class Bar(NamedTuple):
    """``tone``: 0 for a rank's first stage, 1 for its last."""

    rank: int
    text: str
    kind: str
    start: float
    end: float
    tone: float


def timeline(
    name: str,
    updates: Mapping[str, Iterable[Row]],
    words: Words,
    *,
    caption: str = "",
    ranks: int = 0,
) -> Figure:
    """Ranks as lines, milliseconds as x: passes with their micro-batch, messages as thin bars below
    their sender, collectives inside a pass at its lower edge.

    Args:
        name: of the figure, unique on a page.
        updates: title of a panel → rows of a simulation (`Timeline.rows`) or a measurement; all
            panels have one axis of time, each begins with its earliest row.
        caption: instead of the usual one.
        ranks: how many there are; a rank without rows has no share of idle time.
    """
    bars = {title: _bars(rows) for title, rows in updates.items()}
    every = [bar for each in bars.values() for bar in each]
    n = max([ranks, *(1 + bar.rank for bar in every)])
    x = Axis(words("pipeline.time"), low=0, high=max((bar.end for bar in every), default=1.0))
    panels, values = [], []
    for title, each in bars.items():
        end, there = max((bar.end for bar in each), default=1.0), {bar.rank for bar in each}
        idle = [1 - covered(each, rank) / end if rank in there else None for rank in range(n)]
        beside = [_share(share, words) for share in idle]
        panels.append(_panel(each, end, beside, x, words, title))
        values.append((f"{title}: " if title else "") + _idle_of(idle, words))
    alt = words("pipeline.alt.timeline", ms=f"{x.high:.3g}", values=words.semicolons(values))
    caption = caption or _caption("timeline", every, words)
    return Figure(name, caption, alt, panels, _keys(every, words), share_x="all")


def schedule(name: str, grid: Grid, words: Words, *, caption: str = "") -> Figure:
    """A schedule in unit ticks, with each rank's share of idle ticks and its live activations."""
    bars = _toned(
        (rank, str(action), action.kind, float(tick), tick + 1.0)
        for rank, row in enumerate(grid.rows)
        for tick, action in enumerate(row)
        if action is not None
    )
    idle = [1 - len(grid.program(rank)) / grid.ticks for rank in range(grid.ranks)]
    beside = [
        f"{_share(share, words)} · {words('pipeline.live', n=grid.live(rank))}"
        for rank, share in enumerate(idle)
    ]
    every = max(1, -(-grid.ticks // 20))
    ticks = [(tick + 0.5, str(tick)) for tick in range(0, grid.ticks, every)]
    x = Axis(words("pipeline.tick"), low=0, high=grid.ticks, ticks=ticks, grid=False)
    alt = words("pipeline.alt.grid", grid=grid, values=_idle_of(idle, words))
    panel = _panel(bars, grid.ticks, beside, x, words)
    return Figure(name, caption or _caption("grid", bars, words), alt, [panel], _keys(bars, words),
                  width=min(WIDTH, max(440.0, 220.0 + 29 * grid.ticks)))  # fmt: skip


def _keys(bars: Iterable[Bar], words: Words) -> list[Key]:
    used = {IDLE, *(bar.kind for bar in bars)}
    return [
        Key("series", kind, words(f"pipeline.kind.{kind}"), color)
        for kind, color in COLORS.items()
        if kind in used
    ]


def _panel(
    bars: Sequence[Bar], end: float, beside: Sequence[str], x: Axis, words: Words, title: str = ""
) -> Panel:
    """Lines of ranks with one text at the right end of each."""
    names = [str(rank) for rank in range(len(beside))]
    strips = [Box(0, k - LANE / 2, end, LANE, Owner(series=IDLE)) for k in range(len(beside))]
    boxes = [_box(bar, words) for bar in sorted(bars, key=lambda bar: bar.kind == "collective")]
    y = Axis(words("axis.rank"), low=-0.52, high=len(beside) - 0.42, names=names, beside=beside,
             grid=False)  # fmt: skip
    return Panel([*strips, *boxes], x, y, title, height=PIXELS * len(beside))


def _box(bar: Bar, words: Words) -> Box:
    top, height = INSIDE.get(bar.kind, (-LANE / 2, LANE))
    length = bar.end - bar.start
    what = f"{words(f'pipeline.kind.{bar.kind}')} {bar.text}".strip()
    text = bar.text if bar.kind in PASSES else ""
    return Box(bar.start, bar.rank + top, length, height, Owner(series=bar.kind), text, bar.tone,
               hint=f"{what};{length:.3g}")  # fmt: skip


def _bars(rows: Iterable[Row]) -> list[Bar]:
    """In milliseconds from the earliest."""
    rows = list(rows)
    begin = min((row[3] for row in rows), default=0.0)
    return _toned((r, t, k, (a - begin) * 1e3, (b - begin) * 1e3) for r, t, k, a, b in rows)


def _toned(rows: Iterable[Row]) -> list[Bar]:
    """With the micro-batch as text and the tone of the stage among those of its rank."""
    matched = [(row, re.fullmatch(r"(\d+)[FB](\d+)", row[1])) for row in rows]
    stages: dict[int, set[int]] = {}
    for row, match in matched:
        if match:
            stages.setdefault(row[0], set()).add(int(match[1]))
    bars = []
    for (rank, text, kind, start, end), match in matched:
        own = sorted(stages.get(rank, ()))
        tone = own.index(int(match[1])) / max(1, len(own) - 1) if match else 0.0
        bars.append(Bar(rank, match[2] if match else text, kind, start, end, tone))
    return bars


def covered(bars: Iterable[Bar], rank: int) -> float:
    """Time in which a rank works: not what it waits, nor what only travels."""
    spans = sorted(
        (b.start, b.end) for b in bars if b.rank == rank and b.kind not in ("send", "receive")
    )
    total = reached = 0.0
    for start, end in spans:  # collectives lie inside passes
        total += max(0.0, end - max(start, reached))
        reached = max(reached, end)
    return total


def _share(share: float | None, words: Words) -> str:
    return "–" if share is None else words("pipeline.idle", share=f"{100 * share:.0f}")


def _caption(which: str, bars: Iterable[Bar], words: Words) -> str:
    shades = [words("pipeline.caption.shades")] if any(bar.tone for bar in bars) else []
    return words.sentences([words(f"pipeline.caption.{which}"), *shades])


def _idle_of(idle: Sequence[float | None], words: Words) -> str:
    known = [(rank, share) for rank, share in enumerate(idle) if share is not None]
    return words.join(
        [words("pipeline.alt.rank", rank=r, share=f"{100 * share:.0f}") for r, share in known]
    )
