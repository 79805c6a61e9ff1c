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
LANE, THIN = 0.74, 0.13  # heights of a bar and of a message below it, of the distance of ranks


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
    n = max([ranks, *(1 + bar.rank for each in bars.values() for bar in each)])
    ends = {title: max((bar.end for bar in each), default=1.0) for title, each in bars.items()}
    idle = {
        title: [1 - covered(each, rank) / ends[title] if _there(each, rank) else None
                for rank in range(n)]
        for title, each in bars.items()
    }  # fmt: skip
    x = Axis(words("pipeline.time"), low=0, high=max(ends.values(), default=1.0))
    panels = [
        _panel(
            each, n, ends[title], [_share(share, words) for share in idle[title]], x, words, title
        )
        for title, each in bars.items()
    ]
    values = [
        (f"{title}: " if title else "") + _idle_of(shares, words) for title, shares in idle.items()
    ]
    every = [bar for each in bars.values() for bar in each]
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
    return Figure(
        name,
        caption or _caption("grid", bars, words),
        words(
            "pipeline.alt.grid", ranks=grid.ranks, ticks=grid.ticks, values=_idle_of(idle, words)
        ),
        [_panel(bars, grid.ranks, grid.ticks, beside, x, words)],
        _keys(bars, words),
        width=min(WIDTH, max(440.0, 220.0 + 29 * grid.ticks)),
    )


def _keys(bars: Iterable[Bar], words: Words) -> list[Key]:
    used = {IDLE, *(bar.kind for bar in bars)}
    return [
        Key("series", kind, words(f"pipeline.kind.{kind}"), color)
        for kind, color in COLORS.items()
        if kind in used
    ]


def _panel(
    bars: Sequence[Bar],
    ranks: int,
    end: float,
    beside: Sequence[str],
    x: Axis,
    words: Words,
    title: str = "",
) -> Panel:
    """Lines of ranks with one text at the right end of each."""
    strips = [Box(0, rank - LANE / 2, end, LANE, Owner(series=IDLE)) for rank in range(ranks)]
    boxes = [_box(bar, words) for bar in sorted(bars, key=lambda bar: bar.kind == "collective")]
    names = [str(rank) for rank in range(ranks)]
    y = Axis(
        words("axis.rank"), low=-0.52, high=ranks - 0.42, names=names, beside=beside, grid=False
    )
    return Panel([*strips, *boxes], x, y, title, height=PIXELS * ranks)


def _box(bar: Bar, words: Words) -> Box:
    top, height = -LANE / 2, LANE
    if bar.kind == "send":
        top, height = LANE / 2 + 0.015, THIN
    elif bar.kind == "collective":
        top, height = LANE * 0.28, LANE * 0.22
    return Box(
        bar.start,
        bar.rank + top,
        bar.end - bar.start,
        height,
        Owner(series=bar.kind),
        text=bar.text if bar.kind in PASSES else "",
        tone=bar.tone,
        hint=f"{words(f'pipeline.kind.{bar.kind}')} {bar.text}".strip()
        + f";{bar.end - bar.start:.3g}",
    )


def _bars(rows: Iterable[Row]) -> list[Bar]:
    """In milliseconds from the earliest."""
    rows = list(rows)
    begin = min((row[3] for row in rows), default=0.0)
    return _toned((r, t, k, (a - begin) * 1e3, (b - begin) * 1e3) for r, t, k, a, b in rows)


def _toned(rows: Iterable[Row]) -> list[Bar]:
    """With the micro-batch as text and the tone of the stage among those of its rank."""
    rows = list(rows)
    passes = [re.fullmatch(r"(\d+)[FB](\d+)", text) for _, text, *_ in rows]
    stages: dict[int, set[int]] = {}
    for row, match in zip(rows, passes, strict=True):
        if match:
            stages.setdefault(row[0], set()).add(int(match[1]))
    bars = []
    for (rank, text, kind, start, end), match in zip(rows, passes, strict=True):
        tone = 0.0
        if match:
            own = sorted(stages[rank])
            tone = own.index(int(match[1])) / max(1, len(own) - 1)
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


def _there(bars: Iterable[Bar], rank: int) -> bool:
    return any(bar.rank == rank for bar in bars)


def _share(share: float | None, words: Words) -> str:
    return "–" if share is None else words("pipeline.idle", share=f"{100 * share:.0f}")


def _caption(which: str, bars: Iterable[Bar], words: Words) -> str:
    sentences = [words(f"pipeline.caption.{which}")]
    if any(bar.tone for bar in bars):
        sentences.append(words("pipeline.caption.shades"))
    return words.sentences(sentences)


def _idle_of(idle: Sequence[float | None], words: Words) -> str:
    known = [(rank, share) for rank, share in enumerate(idle) if share is not None]
    return words.join(
        [words("pipeline.alt.rank", rank=r, share=f"{100 * share:.0f}") for r, share in known]
    )
