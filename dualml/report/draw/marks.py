"""SVG of every kind of mark, and the order in which marks are drawn."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from dualml.report.draw import text
from dualml.report.draw.palette import SMALL, STROKES
from dualml.report.draw.panels import Array, PlacedPanel, Styles
from dualml.report.draw.text import element, label, number, path
from dualml.report.figure import (
    NOBODY,
    Arrow,
    Band,
    Bar,
    BoxMark,
    Heatmap,
    LineMark,
    Mark,
    ReferenceLine,
    TextMark,
)

WEIGHTS = {"main": "", "thin": "k-hair", "faint": "k-faint"}


def line(mark: LineMark, place: PlacedPanel) -> str:
    """Return a curve with its markers and its band or error bars as SVG."""
    x, y = place.x.to_pixels(mark.x), place.y.to_pixels(mark.y)
    x, y = (x, y + mark.shift) if place.y.axis.names else (x + mark.shift, y)
    style = place.styles.style(mark.owner)
    shape = mark.marker or style.marker
    parts = [_interval_path(mark, x, y, place)]
    if mark.joined:
        parts.append(path(polyline(x, y), "k-fine-dashes" if mark.dashed else WEIGHTS[mark.weight]))
    if shape and shape != "none":
        inside = [
            (a, b)
            for a, b in zip(x, y, strict=True)
            if -1 <= a <= place.width + 1 and -1 <= b <= place.height + 1
        ]
        hollow = style.hollow if mark.hollow is None else mark.hollow
        parts.append(text.markers(shape, inside, hollow=hollow))
    ends = [
        place.y.to_pixels(v) for v in (mark.low, mark.high) if v is not None and mark.bars != "x"
    ]
    points = "" if mark.weight == "faint" else _data_points(mark, x, y, place)
    return place.group(
        mark.owner,
        "".join(parts),
        stroke=True,
        data_points=points,
        clip_path=place.clip_reference(x, y, *ends),
    )


def polyline(x: Array, y: Array) -> str:
    """Return SVG path data through the points, in pixels; a new piece begins after every gap
    (NaN)."""
    pieces, pen = [], "M"
    for a, b in zip(x.tolist(), y.tolist(), strict=True):
        there = math.isfinite(a + b)
        if there:
            pieces.append(f"{pen}{number(a)},{number(b)}")
        pen = "L" if there else "M"
    return "".join(pieces)


def _data_points(mark: LineMark, x: Array, y: Array, place: PlacedPanel) -> str:
    """Return points and values as text for the script, which shows the value under the pointer:
    ``x,y,value`` separated by ``|``, with ``x`` and ``y`` as given, in pixels, and as value the
    point's hint, if the mark has hints, or else its two values in the format of the axes. Points
    that are not finite are left out."""
    at = []
    for k, (a, b) in enumerate(zip(x.tolist(), y.tolist(), strict=True)):
        if math.isfinite(a + b):
            both = [place.x.format_value(mark.x[k]), place.y.format_value(mark.y[k])]
            texts = [mark.hints[k]] if mark.hints else both
            value = ";".join(t.replace(";", ",").replace("|", "/") for t in texts)
            at.append(f"{number(a)},{number(b)},{value}")
    return "|".join(at)


def _interval_path(mark: LineMark, x: Array, y: Array, place: PlacedPanel) -> str:
    """Return the band or the error bars of a line as a path, empty for a line without an
    interval."""
    if mark.low is None or mark.high is None:
        return ""
    if not mark.bars:
        return _area_path(x, place.y.to_pixels(mark.low), place.y.to_pixels(mark.high), place)
    scale, still = (place.x, y) if mark.bars == "x" else (place.y, x)
    ends = zip(still, scale.to_pixels(mark.low), scale.to_pixels(mark.high), strict=True)
    kept = [map(number, end) for end in ends if all(map(math.isfinite, end))]
    d = (f"M{a},{s}H{b}" if mark.bars == "x" else f"M{s},{a}V{b}" for s, a, b in kept)
    return path("".join(d), "k-bars")


def _area_path(x: Array, low: Array, high: Array, place: PlacedPanel) -> str:
    """Return the area between two curves in pixels; lower points that the scale cannot show are
    moved to the bottom of the plot, upper ones are left out."""
    low = np.where(np.isfinite(low), low, place.height)
    kept = np.isfinite(x) & np.isfinite(high)
    there, back = polyline(x[kept], high[kept]), polyline(x[kept][::-1], low[kept][::-1])
    return path(f"{there}L{back[1:]}Z" if there else "", "fill band")


def band(mark: Band, place: PlacedPanel) -> str:
    """Return the SVG of an area between two curves, clipped to the plot; a missing curve is the
    lower or upper edge of the plot."""
    x = place.x.to_pixels(mark.x)
    low, high = (
        np.full(len(x), end) if values is None else place.y.to_pixels(values)
        for values, end in ((mark.low, place.height), (mark.high, 0.0))
    )
    clip = place.clip_reference(x, low, high)
    return place.group(mark.owner, _area_path(x, low, high, place), clip_path=clip)


# --- areas --------------------------------------------------------------------------------------


def bar(mark: Bar, place: PlacedPanel) -> str:
    """Return the SVG of a horizontal bar with its text at the right end; one without width has its
    text only. Empty if the text has no finite position."""
    name, value = place.x.axis.label, place.x.format_value(mark.width)
    value = f"{name}: {value}" if name else value
    row = [place.y.format_value(round(mark.y))] if place.y.axis.names else []
    rect = place.rect(
        mark.left,
        mark.y - mark.height / 2,
        mark.width,
        mark.height,
        data_hint=";".join([*row, value]),
        fill_opacity=".45" if place.styles.style(mark.owner).pale else None,
    )
    end = ""
    if mark.text:
        right, middle = place.x(mark.left + mark.width) + 5, place.y(mark.y)
        if not math.isfinite(right + middle):
            return ""
        end = label(right, middle, mark.text, "small c-ink")
    return place.group(mark.owner, rect * (mark.width != 0) + end)


def box(mark: BoxMark, place: PlacedPanel) -> str:
    """Return the SVG of a rectangle: a frame, or a filled box whose text is left out if it does not
    fit."""
    sides = mark.x, mark.y, mark.width, mark.height
    if mark.frame:
        return place.group(mark.owner, place.rect(*sides, class_="c-card frame", rx=5))
    tone = 1 - 0.62 * mark.tone if mark.tone else None
    inside = place.rect(*sides, fill_opacity=tone, data_hint=mark.hint)
    (a, b) = place.x.to_pixels([mark.x, mark.x + mark.width])
    (c, d) = place.y.to_pixels([mark.y, mark.y + mark.height])
    fits = text.width(mark.text, SMALL) + 1 < abs(b - a) and abs(d - c) > SMALL
    if inside and mark.text and fits:
        color = "c-ink" if mark.tone >= 0.5 else "c-onfill"
        inside += label((a + b) / 2, (c + d) / 2, mark.text, f"small {color}", align="center")
    return place.group(mark.owner, inside)


def heatmap(mark: Heatmap, place: PlacedPanel) -> str:
    """Return the SVG of a matrix as shaded cells with their numbers; NaN cells stay empty."""
    values = np.asarray(mark.table, dtype=float)
    size = min(abs(place.x(1) - place.x(0)), abs(place.y(1) - place.y(0)) * 1.6)
    return place.group(NOBODY, "".join(_cells(mark, values, place, size)))


def _cells(mark: Heatmap, values: Array, place: PlacedPanel, size: float) -> Iterator[str]:
    """Yield the cells of a heatmap with their numbers, rounded to whole ones; cells that are NaN
    stay empty. Numbers that do not fit are left out, and if there is a text ``mark.empty``, also
    zeros; a row of zeros then has this text."""
    for y, row in enumerate(values):
        blank = bool(mark.empty) and not np.nan_to_num(row).any()
        middle = place.x((len(row) - 1) / 2)
        if blank and math.isfinite(middle + place.y(y)):
            yield label(middle, place.y(y), mark.empty, "small c-ink", align="center")
        for x, value in enumerate(row.tolist()):
            if not math.isfinite(value + place.x(x) + place.y(y)):
                continue
            shade = min(1.0, max(0.0, value / (mark.top or 1.0)))
            column = f"{place.x.axis.label} {place.x.format_value(x)}"
            hint = f"{place.y.format_value(y)};{column};{value:.4g}"
            yield place.rect(
                x - 0.5,
                y - 0.5,
                1,
                1,
                class_="c-blue",
                fill_opacity=0.04 + 0.96 * shade,
                data_hint=hint,
            )
            digits = f"{value:.0f}"
            if not blank and (value or not mark.empty) and text.width(digits, 9) < size - 3:
                color = "c-onfill" if shade > 0.55 else "c-ink"
                yield label(place.x(x), place.y(y), digits, color, align="center", size=9)


# --- signs: arrows, texts, lines that mean a value ----------------------------------------------


def arrow(mark: Arrow, place: PlacedPanel) -> str:
    """Return the SVG of an arrow with one or two heads, optional dot and text at its start; empty
    if an end is not finite."""
    (a, b), (c, d) = place.x.to_pixels([mark.x0, mark.x1]), place.y.to_pixels([mark.y0, mark.y1])
    if not math.isfinite(a + b + c + d):
        return ""
    parts = [path(f"M{number(a)},{number(c)}L{number(b)},{number(d)}", "k-line")]
    parts += [_head(a, c, b, d)] + ([_head(b, d, a, c)] if mark.both else [])
    if mark.dot:
        parts.append(element("circle", class_="fill", cx=a, cy=c, r=2.2))
    if mark.text:
        parts.append(label(a - 5, c, mark.text, "small halo", align="right"))
    return place.group(mark.owner, "".join(parts))


def _head(x0: float, y0: float, x1: float, y1: float, size: float = 7.0) -> str:
    """Return the triangle at the end (x1, y1) of an arrow that comes from (x0, y0), in pixels."""
    length = math.hypot(x1 - x0, y1 - y0) or 1.0
    u, v = (x1 - x0) / length * size, (y1 - y0) / length * size
    wings = [(x1 - u + s * 0.42 * v, y1 - v - s * 0.42 * u) for s in (1, -1)]
    return path(f"M{'L'.join(f'{number(x)},{number(y)}' for x, y in ((x1, y1), *wings))}Z", "fill")


def text_mark(mark: TextMark, place: PlacedPanel) -> str:
    """Return the SVG of a text at a position of the axes; empty if the position is not finite."""
    x, y = place.x(mark.x), place.y(mark.y) + mark.dy
    if not math.isfinite(x + y):
        return ""
    looks = ("small" * mark.small, "bold" * mark.bold, "c-muted" * mark.muted)
    inside = label(x, y, mark.text, " ".join(filter(None, looks)), align=mark.align)
    return place.group(mark.owner, inside)


def reference_line(mark: ReferenceLine, place: PlacedPanel) -> str:
    """Return the SVG of a line across the plot, or of a band if the mark has a second end; empty if
    an end is not finite."""
    across = mark.axis == "y"
    scale = place.y if across else place.x
    at, to = (scale(mark.at if v is None else v) for v in (mark.at, mark.to))
    if not math.isfinite(at + to):
        return ""
    if mark.to is not None:
        low, size = min(at, to), abs(to - at)
        sides = (0, low, place.width, size) if across else (low, 0, size, place.height)
        corner = dict(zip(("x", "y", "width", "height"), sides, strict=True))
        return place.group(mark.owner, element("rect", class_="band", **corner))
    end = f"M0,{number(at)}H{number(place.width)}"
    if not across:
        end = f"M{number(at)},0V{number(place.height)}"
    classes = "k-fine-dashes" if mark.dashed else "k-hair"
    if mark.owner == NOBODY:
        classes += " c-grid" if mark.faint else " c-line"
    return place.group(mark.owner, path(end, classes))


DRAWN: dict[type, Callable[[Any, PlacedPanel], str]] = {
    LineMark: line,
    Band: band,
    Bar: bar,
    BoxMark: box,
    Heatmap: heatmap,
    Arrow: arrow,
    TextMark: text_mark,
    ReferenceLine: reference_line,
}


def svg(mark: Mark, place: PlacedPanel) -> str:
    """Return the SVG of any mark, by the function that `DRAWN` lists for its type."""
    return DRAWN[type(mark)](mark, place)


def order_marks(marks: Sequence[Mark], styles: Styles) -> list[Mark]:
    """Return the marks in drawing order: bands and reference lines behind, then faint lines, then
    boxes, bars and heatmaps, then other lines (wide before narrow, so that none is hidden), then
    arrows and texts."""

    def depth(mark: Mark) -> tuple[int, float]:
        if isinstance(mark, LineMark):
            width = STROKES[styles.style(mark.owner).stroke][0]
            return (1, 0.0) if mark.weight == "faint" else (2, -width)
        if isinstance(mark, ReferenceLine | Band):
            return (0, 0.0)
        return (2, -99.0) if isinstance(mark, BoxMark | Bar | Heatmap) else (3, 0.0)

    return sorted(marks, key=depth)
