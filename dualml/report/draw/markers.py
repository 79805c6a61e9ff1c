"""Markers as SVG paths about a point."""

from __future__ import annotations

import itertools
import math
from cmath import rect
from collections.abc import Iterable, Sequence

from dualml.report.draw import text
from dualml.report.draw.text import number

RADIUS = 3.4


def _closed(corners: Sequence[complex]) -> str:
    steps = (f"l{_at(b - a)}" for a, b in itertools.pairwise(corners))
    return f"m{_at(corners[0])}{''.join(steps)}z"


def _at(z: complex) -> str:
    return f"{number(z.real)},{number(z.imag)}"


def _polygon(n: int, turn: float, *sizes: float) -> str:
    """A regular polygon, from its first corner; with two sizes in turn a star."""
    radii = itertools.cycle(RADIUS * size for size in sizes)
    return _closed([rect(next(radii), math.radians(turn + 360 * k / n)) for k in range(n)])


def _plus(turn: float) -> str:
    a, b = RADIUS * 0.38, RADIUS * 1.2
    quarter = (complex(-a, -b), complex(a, -b), complex(a, -a))
    return _closed([z * 1j**k * rect(1, math.radians(turn)) for k in range(4) for z in quarter])


_R, _WIDE = number(RADIUS), number(2 * RADIUS)
#: Name → path of a filled shape, from its middle. ``cross`` is two strokes: what broke off.
SHAPES = {
    "circle": f"m-{_R},0a{_R},{_R} 0 1,0 {_WIDE},0a{_R},{_R} 0 1,0 -{_WIDE},0z",
    "square": _polygon(4, 45, 1.25),
    "triangle": _polygon(3, -90, 1.3),
    "diamond": _polygon(4, -90, 1.3),
    "down": _polygon(3, 90, 1.3),
    "plus": _plus(0),
    "times": _plus(45),
    "pentagon": _polygon(5, -90, 1.15),
    "star": _polygon(10, -90, 1.5, 0.675),
    "hexagon": _polygon(6, -90, 1.15),
    "cross": "m-4,-4l8,8m0,-8l-8,8",
}
CYCLE = tuple(SHAPES)[:-1]


def path(shape: str, places: Iterable[tuple[float, float]], *, hollow: bool = False) -> str:
    """One element for all places; an unknown shape is a circle."""
    form = SHAPES.get(shape, SHAPES["circle"])
    classes = "k-solid" if shape == "cross" else "paper k-line" if hollow else "fill"
    return text.path("".join(f"M{number(x)},{number(y)}{form}" for x, y in places), classes)
