"""Where the panels of a figure are: their scales, and margins as wide as their labels."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from dualml.report.draw import scales, text
from dualml.report.draw.palette import SMALL
from dualml.report.draw.scales import Scale
from dualml.report.figure import Arrow, Axis, Band, Bar, Box, Cells, Figure, Line, Mark, Panel, Rule

GAP = 12.0  # pixels between the letters of neighbours
ROOMS = (300.0, 200.0, 140.0, 90.0, 50.0)  # pixels that a name beside an axis may take
INSIDE = 0.35  # of the width of a figure: what is left for the axes before names are cut
TITLE, TICKS, LABEL = 25.0, 21.0, 20.0  # heights


@dataclass
class Placed:
    """A panel with its place in the figure and the letters that stand about it."""

    panel: Panel
    row: int
    column: int
    x: Scale
    y: Scale
    x_label: bool = True
    y_label: bool = True
    x_ticks: bool = True
    y_ticks: bool = True
    left: float = 0.0
    top: float = 0.0
    width: float = 0.0
    room: float = ROOMS[0]

    @property
    def bare(self) -> bool:
        return self.panel.x.hidden and self.panel.y.hidden

    def before(self) -> float:
        """Pixels left of the axes."""
        if self.panel.y.hidden:
            return 0.0 if self.bare else 4.0
        names = [text.width(name, SMALL) for _, name in self.y.ticks()] if self.y_ticks else []
        return (
            min(self.room, max(names, default=0.0))
            + 9
            + (22 if self.panel.y.label and self.y_label else 0)
        )

    def after(self) -> float:
        beside = [min(self.room, text.width(t, SMALL)) + 10 for t in self.panel.y.beside]
        return max([0.0 if self.bare else 12.0, *beside])

    def above(self) -> float:
        return TITLE if self.panel.title else (0.0 if self.bare else 8.0)

    def below(self) -> float:
        if self.panel.x.hidden:
            return 0.0 if self.bare else 4.0
        label = LABEL if self.panel.x.label and self.x_label else 0.0
        lines = max((name.count("\n") for _, name in self.x.axis.ticks or ()), default=0)
        return (TICKS + 12 * lines if self.x_ticks else 4.0) + label


def place(figure: Figure, top: float) -> tuple[list[Placed], float]:
    """The panels below ``top``, and the height of the figure."""
    empty = Scale(Axis(), "linear", 0.0, 1.0)
    placed = [
        Placed(panel, k // figure.columns, k % figure.columns, empty, empty)
        for k, panel in enumerate(figure.panels)
        if panel is not None
    ]
    _once(placed, figure)
    _up(figure, placed)
    _columns(figure, placed)  # as wide as the labels of y leave them
    _across(figure, placed)
    height = top
    for row in range(1 + max((p.row for p in placed), default=-1)):
        here = [p for p in placed if p.row == row]
        start = height + max((p.above() for p in here), default=0.0)
        for p in here:
            p.top = start
        height = start + max((p.panel.height + p.below() for p in here), default=0.0)
        height += 0.0 if all(p.bare for p in here) else GAP / 2
    return placed, height


def _up(figure: Figure, placed: Sequence[Placed]) -> None:
    """The scales of y, one for the panels that share it; names and what is flipped from above."""
    for p in placed:
        group = [q for q in placed if figure.share_y == "all" or q.row == p.row]
        values = [v for q in (group if figure.share_y else [p]) for v in ys(q.panel.marks)]
        down = bool(p.panel.y.names or p.panel.y.flip)
        ends = (0.0, p.panel.height) if down else (p.panel.height, 0.0)
        p.y = replace(scales.fit(p.panel.y, values), start=ends[0], end=ends[1])


def _across(figure: Figure, placed: Sequence[Placed]) -> None:
    """The scales of x, one for the panels that share it, with room for texts at ends of bars."""
    for p in placed:
        group = [q for q in placed if figure.share_x == "all" or q.column == p.column]
        group = group if figure.share_x else [p]
        values = [v for q in group for v in xs(q.panel.marks)]
        room = max(_texts(q.panel) / q.width for q in group)
        p.x = replace(scales.fit(p.panel.x, values, min(0.5, room)), start=0.0, end=p.width)


def _once(placed: Sequence[Placed], figure: Figure) -> None:
    """What a neighbour to the left or below already shows is not repeated."""
    for p in placed:
        left = next((q for q in placed if (q.row, q.column) == (p.row, p.column - 1)), None)
        down = next((q for q in placed if (q.row, q.column) == (p.row + 1, p.column)), None)
        if left is not None:
            p.y_label = left.panel.y.label != p.panel.y.label
            p.y_ticks = not figure.share_y and (
                not p.panel.y.names or list(left.panel.y.names) != list(p.panel.y.names)
            )
        if down is not None:
            p.x_label = down.panel.x.label != p.panel.x.label
            p.x_ticks = not figure.share_x


def _columns(figure: Figure, placed: Sequence[Placed]) -> None:
    """Widths of what the axes enclose, from what the letters leave."""
    columns = range(figure.columns)
    weight = [max((p.panel.weight for p in placed if p.column == c), default=0.0) for c in columns]
    gaps = GAP * (figure.columns - 1) * (not all(p.bare for p in placed))
    for room in ROOMS:
        for p in placed:
            p.room = room
        before, after = (
            [max((side(p) for p in placed if p.column == c), default=0.0) for c in columns]
            for side in (Placed.before, Placed.after)
        )
        inside = figure.width - sum(before) - sum(after) - gaps
        if inside >= INSIDE * figure.width:
            break
    unit = inside / (sum(weight) or 1.0)
    left = 0.0
    for c in columns:
        left += before[c]
        for p in placed:
            if p.column == c:
                p.left, p.width = left, unit * weight[c]
        left += unit * weight[c] + after[c] + GAP


def _texts(panel: Panel) -> float:
    """Pixels of the longest text at the end of a bar."""
    texts = [text.width(m.text, SMALL) + 10 for m in panel.marks if isinstance(m, Bar) and m.text]
    return max(texts, default=0.0)


def xs(marks: Sequence[Mark]) -> Iterator[float]:
    """Every x that the axis has to show."""
    for mark in marks:
        if isinstance(mark, Line | Band):
            yield from _floats(mark.x)
        if isinstance(mark, Line) and mark.bars == "x":
            yield from (*_floats(mark.low), *_floats(mark.high))
        if isinstance(mark, Bar):
            yield from (mark.left, mark.left + mark.width)
        if isinstance(mark, Box):
            yield from (mark.x, mark.x + mark.width)
        if isinstance(mark, Arrow):
            yield from (mark.x0, mark.x1)
        if isinstance(mark, Cells):
            yield from (-0.5, max(map(len, mark.table), default=0) - 0.5)
        if isinstance(mark, Rule) and mark.axis == "x":
            yield from (mark.at, mark.at if mark.to is None else mark.to)


def ys(marks: Sequence[Mark]) -> Iterator[float]:
    """Every y that the axis has to show; bands need not be seen where they are deep down."""
    for mark in marks:
        if isinstance(mark, Line):
            yield from _floats(mark.y)
            if mark.bars != "x":
                yield from (*_floats(mark.low), *_floats(mark.high))
        if isinstance(mark, Band):
            yield from (*_floats(mark.low), *_floats(mark.high))
        if isinstance(mark, Bar):
            yield from (mark.y - mark.height / 2, mark.y + mark.height / 2)
        if isinstance(mark, Box):
            yield from (mark.y, mark.y + mark.height)
        if isinstance(mark, Arrow):
            yield from (mark.y0, mark.y1)
        if isinstance(mark, Rule) and mark.axis == "y":
            yield from (mark.at, mark.at if mark.to is None else mark.to)


def _floats(values: Iterable[float] | None) -> list[float]:
    if values is None:
        return []
    return [float(v) for v in np.asarray(list(values), dtype=float) if math.isfinite(v)]
