"""A panel in its figure: its scales, the letters about it, and where its marks are drawn, in pixels
from its upper left corner."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dualml.report.draw import text
from dualml.report.draw.palette import SMALL
from dualml.report.draw.scales import Scale
from dualml.report.draw.styles import Styles
from dualml.report.draw.text import element
from dualml.report.figure import Axis, Owner, Panel

Array = NDArray[np.float64]
TITLE, TICKS, LABEL = 25.0, 21.0, 20.0  # heights
ANY = Scale(Axis(), "linear", 0.0, 1.0)  # before it is known


@dataclass
class Place:
    """``clip``: the name of its area; ``room``: pixels that a name beside an axis may take."""

    panel: Panel
    row: int
    column: int
    styles: Styles
    clip: str
    x: Scale = ANY
    y: Scale = ANY
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
        return self.panel.height

    @property
    def bare(self) -> bool:
        return self.panel.x.hidden and self.panel.y.hidden

    # --- pixels beside the axes -------------------------------------------------------------------

    def before(self) -> float:
        if self.panel.y.hidden:
            return 0.0 if self.bare else 4.0
        names = [text.width(name, SMALL) for _, name in self.y.ticks()] if self.y_ticks else []
        label = 22 if self.panel.y.label and self.y_label else 0
        return min(self.room, max(names, default=0.0)) + 9 + label

    def after(self) -> float:
        beside = [min(self.room, text.width(t, SMALL)) + 10 for t in self.panel.y.beside]
        return max([0.0 if self.bare else 12.0, *beside])

    def above(self) -> float:
        return TITLE if self.panel.title else (0.0 if self.bare else 8.0)

    def below(self) -> float:
        if self.panel.x.hidden:
            return 0.0 if self.bare else 4.0
        label = LABEL if self.panel.x.label and self.x_label else 0.0
        lines = max((name.count("\n") for _, name in self.x.axis.ticks or ()), default=0)
        return (TICKS + 12 * lines if self.x_ticks else 4.0) + label

    # --- marks ------------------------------------------------------------------------------------

    def area(self) -> str:
        """What is drawn across the ends of the axes is cut there, with room for strokes."""
        rect = element("rect", x=-3, y=-3, width=self.width + 6, height=self.height + 6)
        return element("clipPath", rect, id=self.clip)

    def cut(self, x: Array, *ys: Array) -> str | None:
        """``clip-path`` of marks of which some points are outside."""
        sides = ((x, self.width), *((y, self.height) for y in ys))
        with np.errstate(invalid="ignore"):
            outside = any(((v < -1) | (v > end + 1)).any() for v, end in sides)
        return f"url(#{self.clip})" if outside else None

    def group(
        self, owner: Owner, inside: str, *, stroke: bool = False, **attributes: str | None
    ) -> str:
        """With the attributes by which the script switches a mark."""
        style = self.styles.style(owner)
        classes = f"m c-{style.color}" + (f" k-{style.stroke}" if stroke else "")
        switches = {"data_arm": owner.arm, "data_backend": owner.backend}
        switches["data_series"] = owner.series
        return element("g", inside, class_=classes, **switches, **attributes) if inside else ""

    def rect(
        self, x: float, y: float, width: float, height: float, **attributes: str | float | None
    ) -> str:
        """From two corners in the units of the axes."""
        (a, b), (c, d) = self.x.many([x, x + width]), self.y.many([y, y + height])
        if not math.isfinite(a + b + c + d):
            return ""
        return element("rect", x=min(a, b), y=min(c, d), width=abs(b - a), height=abs(d - c),
                       **attributes)  # fmt: skip
