"""Curves, points, bands and error bars."""

from __future__ import annotations

import math

import numpy as np

from dualml.report.draw import markers, text
from dualml.report.draw.places import Array, Place
from dualml.report.draw.text import number
from dualml.report.figure import Band, Line

WEIGHTS = {"main": "", "thin": "k-hair", "faint": "k-faint"}


def line(mark: Line, place: Place) -> str:
    x, y = place.x.many(mark.x), place.y.many(mark.y)
    x, y = (x, y + mark.shift) if place.y.axis.names else (x + mark.shift, y)
    style = place.styles.style(mark.owner)
    shape = mark.marker or style.marker
    parts = [_spread(mark, x, y, place)]
    if mark.joined:
        parts.append(
            text.path(path(x, y), "k-fine-dashes" if mark.dashed else WEIGHTS[mark.weight])
        )
    if shape and shape != "none":
        inside = [(a, b) for a, b in zip(x, y, strict=True)
                  if -1 <= a <= place.width + 1 and -1 <= b <= place.height + 1]  # fmt: skip
        hollow = style.hollow if mark.hollow is None else mark.hollow
        parts.append(markers.path(shape, inside, hollow=hollow))
    ends = [place.y.many(v) for v in (mark.low, mark.high) if v is not None and mark.bars != "x"]
    points = "" if mark.weight == "faint" else _answers(mark, x, y, place)
    return place.group(mark.owner, "".join(parts), stroke=True, data_points=points,
                       clip_path=place.cut(x, y, *ends))  # fmt: skip


def path(x: Array, y: Array) -> str:
    """Moves and lines; a new piece after every gap."""
    pieces, pen = [], "M"
    for a, b in zip(x.tolist(), y.tolist(), strict=True):
        there = math.isfinite(a + b)
        if there:
            pieces.append(f"{pen}{number(a)},{number(b)}")
        pen = "L" if there else "M"
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
    return "|".join(at)


def _spread(mark: Line, x: Array, y: Array, place: Place) -> str:
    """The band or the error bars."""
    if mark.low is None or mark.high is None:
        return ""
    if not mark.bars:
        return _area(x, place.y.many(mark.low), place.y.many(mark.high), place)
    scale, still = (place.x, y) if mark.bars == "x" else (place.y, x)
    ends = zip(still, scale.many(mark.low), scale.many(mark.high), strict=True)
    kept = [map(number, end) for end in ends if all(map(math.isfinite, end))]
    d = (f"M{a},{s}H{b}" if mark.bars == "x" else f"M{s},{a}V{b}" for s, a, b in kept)
    return text.path("".join(d), "k-bars")


def _area(x: Array, low: Array, high: Array, place: Place) -> str:
    """What a scale cannot show is its end."""
    low = np.where(np.isfinite(low), low, place.height)
    kept = np.isfinite(x) & np.isfinite(high)
    there, back = path(x[kept], high[kept]), path(x[kept][::-1], low[kept][::-1])
    return text.path(f"{there}L{back[1:]}Z" if there else "", "fill band")


def band(mark: Band, place: Place) -> str:
    x = place.x.many(mark.x)
    low, high = (
        np.full(len(x), end) if values is None else place.y.many(values)
        for values, end in ((mark.low, place.height), (mark.high, 0.0))
    )
    clip = place.cut(x, low, high)
    return place.group(mark.owner, _area(x, low, high, place), clip_path=clip)
