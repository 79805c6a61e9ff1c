"""Every kind of mark as SVG, and their order in depth."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from dualml.report.draw.areas import bar, box, cells
from dualml.report.draw.lines import band, line
from dualml.report.draw.palette import STROKES
from dualml.report.draw.places import Place
from dualml.report.draw.signs import arrow, rule, text
from dualml.report.draw.styles import Styles
from dualml.report.figure import Arrow, Band, Bar, Box, Cells, Line, Mark, Rule, Text

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
        if isinstance(mark, Rule | Band):
            return (0, 0.0)
        if isinstance(mark, Line):
            if mark.weight == "faint":
                return (1, 0.0)
            return (2, -STROKES[styles.style(mark.owner).stroke][0])
        return (2, -99.0) if isinstance(mark, Box | Bar | Cells) else (3, 0.0)

    return sorted(marks, key=depth)
