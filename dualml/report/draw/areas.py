"""Bars, boxes and the cells of a matrix."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from dualml.report.draw import text
from dualml.report.draw.palette import SMALL
from dualml.report.draw.places import Array, Place
from dualml.report.draw.text import attribute, number
from dualml.report.figure import NOBODY, Bar, Box, Cells


def bar(mark: Bar, place: Place) -> str:
    row, label = place.y.axis.names, place.x.axis.label
    value = f"{label}: {place.x.say(mark.width)}" if label else place.x.say(mark.width)
    hint = mark.hint or ";".join([place.y.say(round(mark.y)), value] if row else [value])
    pale = ' fill-opacity=".45"' if place.styles.style(mark.owner).pale else ""
    more = f" data-hint={attribute(hint)}{pale}"
    rect = place.rect(mark.left, mark.y - mark.height / 2, mark.width, mark.height, more)
    end = ""
    if mark.text:
        right, middle = place.x(mark.left + mark.width) + 5, place.y(mark.y)
        if not math.isfinite(right + middle):
            return ""
        end = text.label(right, middle, mark.text, classes="small c-ink", size=SMALL)
    return place.group(mark.owner, rect * (mark.width != 0) + end)


def box(mark: Box, place: Place) -> str:
    (a, b) = place.x.many([mark.x, mark.x + mark.width])
    (c, d) = place.y.many([mark.y, mark.y + mark.height])
    hint = f" data-hint={attribute(mark.hint)}" if mark.hint else ""
    if mark.frame:
        look = f' class="c-card frame" rx="5"{hint}'
        return place.group(mark.owner, place.rect(mark.x, mark.y, mark.width, mark.height, look))
    tone = f' fill-opacity="{number(1 - 0.62 * mark.tone)}"' if mark.tone else ""
    rect = place.rect(mark.x, mark.y, mark.width, mark.height, f"{tone}{hint}")
    inside = ""
    if rect and mark.text and text.width(mark.text, SMALL) + 1 < abs(b - a) and abs(d - c) > SMALL:
        color = "c-ink" if mark.tone >= 0.5 else "c-onfill"
        inside = text.label((a + b) / 2, (c + d) / 2, mark.text, align="center", size=SMALL,
                            classes=f"small {color}")  # fmt: skip
    return place.group(mark.owner, rect + inside)


def cells(mark: Cells, place: Place) -> str:
    values = np.asarray(mark.table, dtype=float)
    size = min(abs(place.x(1) - place.x(0)), abs(place.y(1) - place.y(0)) * 1.6)
    return place.group(NOBODY, "".join(_cells(mark, values, place, size)))


def _cells(mark: Cells, values: Array, place: Place, size: float) -> Iterator[str]:
    for y, row in enumerate(values):
        blank = bool(mark.empty) and not np.nan_to_num(row).any()
        middle = place.x((len(row) - 1) / 2)
        if blank and math.isfinite(middle + place.y(y)):
            yield text.label(middle, place.y(y), mark.empty, align="center", classes="small c-ink")
        for x, value in enumerate(row.tolist()):
            if not math.isfinite(value + place.x(x) + place.y(y)):
                continue
            shade = min(1.0, max(0.0, value / (mark.top or 1.0)))
            hint = f"{place.y.say(y)};{place.x.axis.label} {place.x.say(x)};{value:.4g}"
            more = f' class="c-blue" fill-opacity="{number(0.04 + 0.96 * shade)}"'
            yield place.rect(x - 0.5, y - 0.5, 1, 1, f"{more} data-hint={attribute(hint)}")
            digits = f"{value:.0f}"
            if not blank and (value or not mark.empty) and text.width(digits, 9) < size - 3:
                color = "c-onfill" if shade > 0.55 else "c-ink"
                yield text.label(place.x(x), place.y(y), digits, align="center", size=9,
                                 classes=color, more=' font-size="9"')  # fmt: skip
