"""Where the marks of a panel are drawn, in pixels from its upper left corner."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dualml.report.draw.scales import Scale
from dualml.report.draw.styles import Styles, tags
from dualml.report.draw.text import attribute, number
from dualml.report.figure import Owner

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Place:
    """Where a panel's marks are drawn: its scales and its size in pixels."""

    x: Scale
    y: Scale
    width: float
    height: float
    styles: Styles
    clip: str

    def area(self) -> str:
        """What is drawn across the ends of the axes is cut there, with room for strokes."""
        size = f'width="{number(self.width + 6)}" height="{number(self.height + 6)}"'
        return f'<clipPath id={attribute(self.clip)}><rect x="-3" y="-3" {size}/></clipPath>'

    def cut(self, x: Array, *ys: Array) -> str:
        """An attribute for marks of which some points are outside."""
        sides = ((x, self.width), *((y, self.height) for y in ys))
        with np.errstate(invalid="ignore"):
            outside = any(((v < -1) | (v > end + 1)).any() for v, end in sides)
        return f' clip-path="url(#{self.clip})"' if outside else ""

    def group(self, owner: Owner, inside: str, *, more: str = "", stroke: bool = False) -> str:
        style = self.styles.style(owner)
        classes = f"m c-{style.color}" + (f" k-{style.stroke}" if stroke else "")
        return f'<g class="{classes}"{tags(owner)}{more}>{inside}</g>' if inside else ""

    def rect(self, x: float, y: float, width: float, height: float, more: str = "") -> str:
        """From two corners in the units of the axes."""
        (a, b), (c, d) = self.x.many([x, x + width]), self.y.many([y, y + height])
        if not math.isfinite(a + b + c + d):
            return ""
        corner = f'x="{number(min(a, b))}" y="{number(min(c, d))}"'
        return f'<rect {corner} width="{number(abs(b - a))}" height="{number(abs(d - c))}"{more}/>'
