"""Bars, boxes and the cells of a matrix."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from dualml.report.draw import text
from dualml.report.draw.palette import SMALL
from dualml.report.draw.places import Array, Place
from dualml.report.figure import NOBODY, Bar, Box, Cells


def bar(mark: Bar, place: Place) -> str:
    name, value = place.x.axis.label, place.x.say(mark.width)
    value = f"{name}: {value}" if name else value
    row = [place.y.say(round(mark.y))] if place.y.axis.names else []
    rect = place.rect(
        mark.left, mark.y - mark.height / 2, mark.width, mark.height,
        data_hint=";".join([*row, value]),
        fill_opacity=".45" if place.styles.style(mark.owner).pale else None,
    )  # fmt: skip
    end = ""
    if mark.text:
        right, middle = place.x(mark.left + mark.width) + 5, place.y(mark.y)
        if not math.isfinite(right + middle):
            return ""
        end = text.label(right, middle, mark.text, "small c-ink")
    return place.group(mark.owner, rect * (mark.width != 0) + end)


def box(mark: Box, place: Place) -> str:
    sides = mark.x, mark.y, mark.width, mark.height
    if mark.frame:
        return place.group(mark.owner, place.rect(*sides, class_="c-card frame", rx=5))
    tone = 1 - 0.62 * mark.tone if mark.tone else None
    inside = place.rect(*sides, fill_opacity=tone, data_hint=mark.hint)
    (a, b) = place.x.many([mark.x, mark.x + mark.width])
    (c, d) = place.y.many([mark.y, mark.y + mark.height])
    fits = text.width(mark.text, SMALL) + 1 < abs(b - a) and abs(d - c) > SMALL
    if inside and mark.text and fits:
        color = "c-ink" if mark.tone >= 0.5 else "c-onfill"
        inside += text.label((a + b) / 2, (c + d) / 2, mark.text, f"small {color}", align="center")
    return place.group(mark.owner, inside)


def cells(mark: Cells, place: Place) -> str:
    values = np.asarray(mark.table, dtype=float)
    size = min(abs(place.x(1) - place.x(0)), abs(place.y(1) - place.y(0)) * 1.6)
    return place.group(NOBODY, "".join(_cells(mark, values, place, size)))


def _cells(mark: Cells, values: Array, place: Place, size: float) -> Iterator[str]:
    for y, row in enumerate(values):
        blank = bool(mark.empty) and not np.nan_to_num(row).any()
        middle = place.x((len(row) - 1) / 2)
        if blank and math.isfinite(middle + place.y(y)):
            yield text.label(middle, place.y(y), mark.empty, "small c-ink", align="center")
        for x, value in enumerate(row.tolist()):
            if not math.isfinite(value + place.x(x) + place.y(y)):
                continue
            shade = min(1.0, max(0.0, value / (mark.top or 1.0)))
            hint = f"{place.y.say(y)};{place.x.axis.label} {place.x.say(x)};{value:.4g}"
            yield place.rect(x - 0.5, y - 0.5, 1, 1, class_="c-blue",
                             fill_opacity=0.04 + 0.96 * shade, data_hint=hint)  # fmt: skip
            digits = f"{value:.0f}"
            if not blank and (value or not mark.empty) and text.width(digits, 9) < size - 3:
                color = "c-onfill" if shade > 0.55 else "c-ink"
                yield text.label(place.x(x), place.y(y), digits, color, align="center", size=9)
