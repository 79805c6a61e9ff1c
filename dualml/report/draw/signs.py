"""Arrows, texts, and lines across a panel that mean a value."""

from __future__ import annotations

import math

from dualml.report.draw.palette import SMALL
from dualml.report.draw.places import Place
from dualml.report.draw.text import LETTER, attribute, label, number
from dualml.report.figure import NOBODY, Arrow, Rule, Text


def arrow(mark: Arrow, place: Place) -> str:
    (a, b), (c, d) = place.x.many([mark.x0, mark.x1]), place.y.many([mark.y0, mark.y1])
    if not math.isfinite(a + b + c + d):
        return ""
    parts = [f'<path class="k-line" d="M{number(a)},{number(c)}L{number(b)},{number(d)}"/>']
    parts += [_head(a, c, b, d)] + ([_head(b, d, a, c)] if mark.both else [])
    if mark.dot:
        parts.append(f'<circle class="fill" cx="{number(a)}" cy="{number(c)}" r="2.2"/>')
    if mark.text:
        parts.append(label(a - 5, c, mark.text, align="right", classes="small halo",
                                size=SMALL))  # fmt: skip
    more = f" data-hint={attribute(mark.hint)}" if mark.hint else ""
    return place.group(mark.owner, "".join(parts), more=more)


def _head(x0: float, y0: float, x1: float, y1: float, size: float = 7.0) -> str:
    length = math.hypot(x1 - x0, y1 - y0) or 1.0
    u, v = (x1 - x0) / length * size, (y1 - y0) / length * size
    back = (x1 - u, y1 - v)
    wings = [(back[0] + s * 0.42 * v, back[1] - s * 0.42 * u) for s in (1, -1)]
    points = "L".join(f"{number(x)},{number(y)}" for x, y in ((x1, y1), *wings))
    return f'<path class="fill" d="M{points}Z"/>'


def text(mark: Text, place: Place) -> str:
    x, y = place.x(mark.x) + mark.dx, place.y(mark.y) + mark.dy
    if not math.isfinite(x + y):
        return ""
    classes = " ".join(filter(None, ("small" if mark.small else "", mark.look,
                                     "c-muted" if mark.muted else "")))  # fmt: skip
    size = SMALL if mark.small else LETTER
    inside = label(x, y, mark.text, align=mark.align, classes=classes, size=size)
    return place.group(mark.owner, inside)


def rule(mark: Rule, place: Place) -> str:
    scale = place.x if mark.axis == "x" else place.y
    at = scale(mark.at)
    if not math.isfinite(at + (0.0 if mark.to is None else scale(mark.to))):
        return ""
    if mark.to is not None:
        low, high = sorted((at, scale(mark.to)))
        box = (low, 0.0, high - low, place.height) if mark.axis == "x" else (
            0.0, low, place.width, high - low)  # fmt: skip
        x, y, width, height = map(number, box)
        inside = f'<rect class="band" x="{x}" y="{y}" width="{width}" height="{height}"/>'
        return place.group(mark.owner, inside)
    end = f"M{number(at)},0V{number(place.height)}"
    if mark.axis == "y":
        end = f"M0,{number(at)}H{number(place.width)}"
    classes = "k-fine-dashes" if mark.dashed else "k-hair"
    if mark.owner == NOBODY:
        classes += " c-grid" if mark.faint else " c-line"
    return place.group(mark.owner, f'<path class="{classes}" d="{end}"/>')
