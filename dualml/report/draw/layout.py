"""The layout of a figure: the scales of its panels, and margins as wide as their labels."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Literal

import numpy as np

from dualml.report.draw import scales, text
from dualml.report.draw.palette import SMALL
from dualml.report.draw.panels import PlacedPanel, Styles
from dualml.report.figure import (
    Arrow,
    Band,
    Bar,
    BoxMark,
    Figure,
    Heatmap,
    LineMark,
    Mark,
    Panel,
    ReferenceLine,
)

GAP = 12.0  # pixels between the labels of neighbouring panels
NAME_WIDTHS = (300.0, 200.0, 140.0, 90.0, 50.0)  # pixels that a name beside an axis may take
MIN_PLOT_SHARE = 0.35  # share of the width kept for plot areas; below it names are truncated


def place_panels(figure: Figure, styles: Styles, top: float) -> tuple[list[PlacedPanel], float]:
    """Place the panels below ``top`` (pixels): set their scales, margins and positions. Return
    them, without empty places, with the height of the figure in pixels."""
    placed: list[PlacedPanel] = []
    for k, panel in enumerate(figure.panels):
        if panel is not None:
            clip = re.sub(r"[^\w-]", "-", f"clip-{figure.name}-{len(placed)}")
            placed.append(PlacedPanel(panel, *divmod(k, figure.columns), styles, clip))
    _hide_repeated_labels(placed, figure)
    _set_y_scales(figure, placed)
    _set_column_widths(figure, placed)  # after the y scales, whose labels set the margins
    _set_x_scales(figure, placed)
    height = top
    for row in range(1 + max((p.row for p in placed), default=-1)):
        here = [p for p in placed if p.row == row]
        start = height + max((p.top_margin() for p in here), default=0.0)
        for p in here:
            p.top = start
        height = start + max((p.height + p.bottom_margin() for p in here), default=0.0)
        height += 0.0 if all(p.bare for p in here) else GAP / 2
    return placed, height


def _set_y_scales(figure: Figure, placed: Sequence[PlacedPanel]) -> None:
    """Set the scales of y, one for the panels that share it; axes of names and flipped axes run
    downwards."""
    for p in placed:
        group = [q for q in placed if figure.share_y == "all" or q.row == p.row]
        values = [v for q in (group if figure.share_y else [p]) for v in extent(q.panel, "y")]
        down = bool(p.panel.y.names or p.panel.y.flip)
        start, end = (0.0, p.height) if down else (p.height, 0.0)
        p.y = replace(scales.fit_scale(p.panel.y, values), start=start, end=end)


def _set_x_scales(figure: Figure, placed: Sequence[PlacedPanel]) -> None:
    """Set the scales of x, one for the panels that share it, with space for texts at the ends of
    bars."""
    for p in placed:
        group = [q for q in placed if figure.share_x == "all" or q.column == p.column]
        group = group if figure.share_x else [p]
        values = [v for q in group for v in extent(q.panel, "x")]
        room = max(_max_text_width(q.panel) / q.width for q in group)
        p.x = replace(scales.fit_scale(p.panel.x, values, min(0.5, room)), start=0.0, end=p.width)


def _hide_repeated_labels(placed: Sequence[PlacedPanel], figure: Figure) -> None:
    """Hide axis labels that the neighbour to the left (y) or below (x) already shows, and ticks
    next to a neighbour that shares their range or has the same names."""
    at = {(p.row, p.column): p for p in placed}
    for (row, column), p in at.items():
        if left := at.get((row, column - 1)):
            p.y_label = left.panel.y.label != p.panel.y.label
            names = list(p.panel.y.names)
            p.y_ticks = not figure.share_y and (not names or list(left.panel.y.names) != names)
        if down := at.get((row + 1, column)):
            p.x_label = down.panel.x.label != p.panel.x.label
            p.x_ticks = not figure.share_x


def _set_column_widths(figure: Figure, placed: Sequence[PlacedPanel]) -> None:
    """Set the widths of the plot areas from the space that the labels leave."""
    columns = [[p for p in placed if p.column == c] for c in range(figure.columns)]
    weights = [max((p.panel.weight for p in column), default=0.0) for column in columns]
    gaps = GAP * (figure.columns - 1) * (not all(p.bare for p in placed))
    for room in NAME_WIDTHS:
        for p in placed:
            p.room = room
        before, after = (
            [max(map(side, column), default=0.0) for column in columns]
            for side in (PlacedPanel.left_margin, PlacedPanel.right_margin)
        )
        inside = figure.width - sum(before) - sum(after) - gaps
        if inside >= MIN_PLOT_SHARE * figure.width:
            break
    unit = inside / (sum(weights) or 1.0)
    left = 0.0
    for column, weight, ahead, behind in zip(columns, weights, before, after, strict=True):
        for p in column:
            p.left, p.width = left + ahead, unit * weight
        left += ahead + unit * weight + behind + GAP


def _max_text_width(panel: Panel) -> float:
    """Return the width in pixels of the longest text at the end of a bar."""
    texts = [text.width(m.text, SMALL) + 10 for m in panel.marks if isinstance(m, Bar) and m.text]
    return max(texts, default=0.0)


def extent(panel: Panel, axis: Literal["x", "y"]) -> Iterator[float]:
    """Yield every position of marks that the axis has to include, NaN too; texts need no space."""
    for mark in panel.marks:
        for values in _extent(mark, axis):
            yield from () if values is None else np.asarray(values, dtype=float).flat


def _extent(mark: Mark, axis: Literal["x", "y"]) -> Iterable[Iterable[float] | None]:
    """Return the positions of one mark along an axis, in sequences (None: no values); none for
    texts, for a heatmap along y and for a reference line of the other axis."""
    across = axis == "x"
    match mark:
        case LineMark():
            ends = (mark.low, mark.high) if across == (mark.bars == "x") else ()
            return (mark.x if across else mark.y, *ends)
        case Band():
            return (mark.x,) if across else (mark.low, mark.high)
        case Bar(y, width, _, left, height):
            return ((left, left + width) if across else (y - height / 2, y + height / 2),)
        case BoxMark(x, y, width, height):
            return ((x, x + width) if across else (y, y + height),)
        case Arrow(x0, y0, x1, y1):
            return ((x0, x1) if across else (y0, y1),)
        case Heatmap() if across:
            return ((-0.5, max(map(len, mark.table), default=0) - 0.5),)
        case ReferenceLine(at, to) if mark.axis == axis:
            return ((at, at if to is None else to),)
    return ()
