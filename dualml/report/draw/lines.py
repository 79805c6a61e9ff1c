"""Curves, points, bands and error bars."""

from __future__ import annotations

import math

import numpy as np

from dualml.report.draw import markers
from dualml.report.draw.places import Array, Place
from dualml.report.draw.text import attribute, number
from dualml.report.figure import Band, Line


def line(mark: Line, place: Place) -> str:
    x, y = place.x.many(mark.x), place.y.many(mark.y)
    if place.y.axis.names:
        y = y + mark.shift
    else:
        x = x + mark.shift
    style = place.styles.style(mark.owner)
    shape = mark.marker or style.marker
    hollow = style.hollow if mark.hollow is None else mark.hollow
    points = [(a, b) for a, b in zip(x, y, strict=True) if math.isfinite(a + b)]
    parts = [_spread(mark, x, y, place)]
    if mark.joined:
        weight = {"main": "", "thin": "k-hair", "faint": "k-faint"}[mark.weight]
        dashed = "k-fine-dashes" if mark.dashed else weight
        classes = f' class="{dashed}"' if dashed else ""
        d = path(x, y)
        parts.append(f'<path{classes} d="{d}"/>' if d else "")
    if shape and shape != "none":
        inside = [(a, b) for a, b in points
                  if -1 <= a <= place.width + 1 and -1 <= b <= place.height + 1]  # fmt: skip
        parts.append(markers.path(shape, inside, hollow=hollow))
    more = "" if mark.weight == "faint" else _answers(mark, x, y, place)
    ends = [place.y.many(v) for v in (mark.low, mark.high) if v is not None and mark.bars != "x"]
    more += place.cut(x, y, *ends)
    return place.group(mark.owner, "".join(parts), more=more, stroke=True)


def path(x: Array, y: Array) -> str:
    """Moves and lines; a new piece after every gap."""
    pieces, pen = [], "M"
    for a, b in zip(x.tolist(), y.tolist(), strict=True):
        if a - a or b - b:  # NaN and infinities
            pen = "M"
        else:
            pieces.append(f"{pen}{number(a)},{number(b)}")
            pen = "L"
    return "".join(pieces)


def _answers(mark: Line, x: Array, y: Array, place: Place) -> str:
    """The points with their values: what is shown under the pointer."""
    at = []
    for k, (a, b) in enumerate(zip(x.tolist(), y.tolist(), strict=True)):
        if math.isfinite(a + b):
            both = [place.x.say(mark.x[k]), place.y.say(mark.y[k])]
            texts = [mark.hints[k]] if mark.hints else both
            value = ";".join(t.replace(";", ",").replace("|", "/") for t in texts)
            at.append(f"{number(a)},{number(b)},{value}")
    return f" data-points={attribute('|'.join(at))}" if at else ""


def _spread(mark: Line, x: Array, y: Array, place: Place) -> str:
    """The band or the error bars."""
    if mark.low is None or mark.high is None:
        return ""
    if not mark.bars:
        return _area(x, place.y.many(mark.low), place.y.many(mark.high), place)
    scale, still = (place.x, y) if mark.bars == "x" else (place.y, x)
    ends = zip(still, scale.many(mark.low), scale.many(mark.high), strict=True)
    kept = [[number(v) for v in end] for end in ends if all(map(math.isfinite, end))]
    d = "".join(f"M{a},{s}H{b}" if mark.bars == "x" else f"M{s},{a}V{b}" for s, a, b in kept)
    return f'<path class="k-bars" d="{d}"/>' if d else ""


def _area(x: Array, low: Array, high: Array, place: Place) -> str:
    """What a scale cannot show is its end."""
    low = np.where(np.isfinite(low), low, place.height)
    kept = np.isfinite(x) & np.isfinite(high)
    if not kept.any():
        return ""
    there, back = path(x[kept], high[kept]), path(x[kept][::-1], low[kept][::-1])
    return f'<path class="fill band" d="{there}L{back[1:]}Z"/>'


def band(mark: Band, place: Place) -> str:
    x = place.x.many(mark.x)
    low, high = (
        np.full(len(x), end) if values is None else place.y.many(values)
        for values, end in ((mark.low, place.height), (mark.high, 0.0))
    )
    more = place.cut(x, low, high)
    return place.group(mark.owner, _area(x, low, high, place), more=more)
