"""Every kind of mark as SVG, and their order in depth; of signs: arrows, texts, and lines across a
panel that mean a value."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from dualml.report.draw.areas import bar, box, cells
from dualml.report.draw.lines import band, line
from dualml.report.draw.palette import STROKES
from dualml.report.draw.places import Place
from dualml.report.draw.styles import Styles
from dualml.report.draw.text import element, label, number, path
from dualml.report.figure import NOBODY, Arrow, Band, Bar, Box, Cells, Line, Mark, Rule, Text


def arrow(mark: Arrow, place: Place) -> str:
    (a, b), (c, d) = place.x.many([mark.x0, mark.x1]), place.y.many([mark.y0, mark.y1])
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
    length = math.hypot(x1 - x0, y1 - y0) or 1.0
    u, v = (x1 - x0) / length * size, (y1 - y0) / length * size
    wings = [(x1 - u + s * 0.42 * v, y1 - v - s * 0.42 * u) for s in (1, -1)]
    return path(f"M{'L'.join(f'{number(x)},{number(y)}' for x, y in ((x1, y1), *wings))}Z", "fill")


def text(mark: Text, place: Place) -> str:
    x, y = place.x(mark.x), place.y(mark.y) + mark.dy
    if not math.isfinite(x + y):
        return ""
    looks = ("small" * mark.small, "bold" * mark.bold, "c-muted" * mark.muted)
    inside = label(x, y, mark.text, " ".join(filter(None, looks)), align=mark.align)
    return place.group(mark.owner, inside)


def rule(mark: Rule, place: Place) -> str:
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


DRAWN: dict[type, Callable[[Any, Place], str]] = {
    Line: line,
    Band: band,
    Bar: bar,
    Box: box,
    Cells: cells,
    Arrow: arrow,
    Text: text,
    Rule: rule,
}


def svg(mark: Mark, place: Place) -> str:
    return DRAWN[type(mark)](mark, place)


def ordered(marks: Sequence[Mark], styles: Styles) -> list[Mark]:
    """Areas and rules behind; of lines the noise first, then wide before narrow, so that none is
    hidden; all others in their order."""

    def depth(mark: Mark) -> tuple[int, float]:
        if isinstance(mark, Line):
            width = STROKES[styles.style(mark.owner).stroke][0]
            return (1, 0.0) if mark.weight == "faint" else (2, -width)
        if isinstance(mark, Rule | Band):
            return (0, 0.0)
        return (2, -99.0) if isinstance(mark, Box | Bar | Cells) else (3, 0.0)

    return sorted(marks, key=depth)
