"""Resolved styles of marks, and panels with their scales and margins, in pixels from the upper left
corner."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dualml.report.draw import text
from dualml.report.draw.palette import CYCLE, SMALL
from dualml.report.draw.scales import Scale
from dualml.report.draw.text import element
from dualml.report.figure import KINDS, NOBODY, Axis, Figure, LegendEntry, Mark, Panel, SeriesId

Array = NDArray[np.float64]
TITLE, TICKS, LABEL = 25.0, 21.0, 20.0  # heights
PLACEHOLDER_SCALE = Scale(Axis(), "linear", 0.0, 1.0)  # placeholder until the scale is fitted


class Styles:
    """The legend entries of a figure, completed: ``entries`` maps (kind, name) to an entry, and a
    series that is drawn without one gets an entry with the next free colour."""

    def __init__(self, figure: Figure) -> None:
        self.entries = {(key.kind, key.name): key for key in figure.entries}
        colors = {key.color for key in figure.entries}
        free = iter([c for c in CYCLE if c not in colors] + list(CYCLE) * 9)
        shapes = [s for s in text.MARKERS if s not in {key.marker for key in figure.entries}]
        marked = any(key.marker and key.kind == "series" for key in figure.entries)
        for owner in map(owner_of, iter_marks(figure)):
            if any(key.color for key in self._entries_of(owner)):
                continue
            new = [
                k for k in KINDS if owner.name_for(k) and (k, owner.name_for(k)) not in self.entries
            ]
            for kind in new[:1]:
                shape = shapes.pop(0) if marked and shapes and kind == "series" else ""
                name = owner.name_for(kind)
                self.entries[kind, name] = LegendEntry(kind, name, color=next(free), marker=shape)

    def _entries_of(self, owner: SeriesId) -> list[LegendEntry]:
        """Return the legend entries that apply to an owner, the deciding one first."""
        places = ((kind, owner.name_for(kind)) for kind in KINDS)
        return [self.entries[place] for place in places if place in self.entries]

    def style(self, owner: SeriesId) -> LegendEntry:
        """Return the style of an owner: colour, stroke and marker come from the first legend entry
        that sets them (else ink, solid, none); it is hollow or pale if any entry is."""
        entries = self._entries_of(owner)
        color, stroke, marker = (
            next((value for key in entries if (value := getattr(key, name))), usual)
            for name, usual in (("color", "ink"), ("stroke", "solid"), ("marker", ""))
        )
        hollow, pale = any(k.hollow for k in entries), any(k.pale for k in entries)
        return LegendEntry("series", "", "", color, stroke, marker, hollow, pale)


def owner_of(mark: Mark) -> SeriesId:
    """Return the owner of a mark, `NOBODY` for marks without one."""
    return getattr(mark, "owner", NOBODY)


def iter_marks(figure: Figure) -> Iterator[Mark]:
    """Yield the marks of all panels of a figure, in order; empty places have none."""
    for panel in figure.panels:
        yield from panel.marks if panel is not None else ()


@dataclass
class PlacedPanel:
    """A panel placed in a figure. ``clip``: the id of its clip path; ``room``: pixels that a name
    beside an axis may take."""

    panel: Panel
    row: int
    column: int
    styles: Styles
    clip: str
    x: Scale = PLACEHOLDER_SCALE
    y: Scale = PLACEHOLDER_SCALE
    x_label: bool = True
    y_label: bool = True
    x_ticks: bool = True
    y_ticks: bool = True
    left: float = 0.0
    top: float = 0.0
    width: float = 0.0
    room: float = 0.0

    @property
    def height(self) -> float:
        """Height of the plot area in pixels."""
        return self.panel.height

    @property
    def bare(self) -> bool:
        """Whether both axes are hidden."""
        return self.panel.x.hidden and self.panel.y.hidden

    # --- pixels beside the axes -------------------------------------------------------------------

    def left_margin(self) -> float:
        """Return the pixels needed left of the plot area."""
        if self.panel.y.hidden:
            return 0.0 if self.bare else 4.0
        names = [text.width(name, SMALL) for _, name in self.y.ticks()] if self.y_ticks else []
        label = 22 if self.panel.y.label and self.y_label else 0
        return min(self.room, max(names, default=0.0)) + 9 + label

    def right_margin(self) -> float:
        """Return the pixels needed right of the plot area."""
        beside = [min(self.room, text.width(t, SMALL)) + 10 for t in self.panel.y.beside]
        return max([0.0 if self.bare else 12.0, *beside])

    def top_margin(self) -> float:
        """Return the pixels needed above the plot area."""
        return TITLE if self.panel.title else (0.0 if self.bare else 8.0)

    def bottom_margin(self) -> float:
        """Return the pixels needed below the plot area."""
        if self.panel.x.hidden:
            return 0.0 if self.bare else 4.0
        label = LABEL if self.panel.x.label and self.x_label else 0.0
        lines = max((name.count("\n") for _, name in self.x.axis.ticks or ()), default=0)
        return (TICKS + 12 * lines if self.x_ticks else 4.0) + label

    # --- marks ------------------------------------------------------------------------------------

    def clip_element(self) -> str:
        """Return the clip path of the plot area, with a margin for strokes."""
        rect = element("rect", x=-3, y=-3, width=self.width + 6, height=self.height + 6)
        return element("clipPath", rect, id=self.clip)

    def clip_reference(self, x: Array, *ys: Array) -> str | None:
        """Return the ``clip-path`` reference for marks with points (in pixels) outside the plot
        area, else None."""
        sides = ((x, self.width), *((y, self.height) for y in ys))
        with np.errstate(invalid="ignore"):
            outside = any(((v < -1) | (v > end + 1)).any() for v, end in sides)
        return f"url(#{self.clip})" if outside else None

    def group(
        self, owner: SeriesId, inside: str, *, stroke: bool = False, **attributes: str | None
    ) -> str:
        """Return a group with the colour of its owner, with ``stroke`` also the owner's stroke, and
        the attributes by which the script toggles it; empty for empty content."""
        style = self.styles.style(owner)
        classes = f"m c-{style.color}" + (f" k-{style.stroke}" if stroke else "")
        switches = {"data_arm": owner.arm, "data_backend": owner.backend}
        switches["data_series"] = owner.series
        return element("g", inside, class_=classes, **switches, **attributes) if inside else ""

    def rect(
        self, x: float, y: float, width: float, height: float, **attributes: str | float | None
    ) -> str:
        """Return a rectangle given in axis units; empty if the scale cannot show it."""
        (a, b), (c, d) = self.x.to_pixels([x, x + width]), self.y.to_pixels([y, y + height])
        if not math.isfinite(a + b + c + d):
            return ""
        return element(
            "rect", x=min(a, b), y=min(c, d), width=abs(b - a), height=abs(d - c), **attributes
        )
