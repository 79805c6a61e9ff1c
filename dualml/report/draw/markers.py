"""Markers as SVG paths about a point."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable

from dualml.report.draw.text import number

RADIUS = 3.4


def _polygon(corners: int, turn: float = -90.0, size: float = 1.15, dent: float = 0.0) -> str:
    """A regular polygon, from its first corner; with ``dent`` a star."""
    points = []
    n = 2 * corners if dent else corners
    for k in range(n):
        r = RADIUS * size * (dent if dent and k % 2 else 1.0)
        angle = math.radians(turn + 360 * k / n)
        points.append((r * math.cos(angle), r * math.sin(angle)))
    return _closed(points)


def _closed(points: list[tuple[float, float]]) -> str:
    (x, y), *_ = points
    steps = [f"l{number(b[0] - a[0])},{number(b[1] - a[1])}" for a, b in itertools.pairwise(points)]
    return f"m{number(x)},{number(y)}{''.join(steps)}z"


def _plus(turn: float = 0.0) -> str:
    a, b = RADIUS * 0.38, RADIUS * 1.2
    corners = [(-a, -b), (a, -b), (a, -a), (b, -a), (b, a), (a, a),
               (a, b), (-a, b), (-a, a), (-b, a), (-b, -a), (-a, -a)]  # fmt: skip
    u, v = math.cos(math.radians(turn)), math.sin(math.radians(turn))
    return _closed([(x * u - y * v, x * v + y * u) for x, y in corners])


_R = number(RADIUS)
#: Name → path of a filled shape, from its middle. ``cross`` is two strokes: what broke off.
SHAPES = {
    "circle": f"m-{_R},0a{_R},{_R} 0 1,0 {number(2 * RADIUS)},0a{_R},{_R} 0 1,0 "
    f"-{number(2 * RADIUS)},0z",
    "square": _polygon(4, 45, 1.25),
    "triangle": _polygon(3, -90, 1.3),
    "diamond": _polygon(4, -90, 1.3),
    "down": _polygon(3, 90, 1.3),
    "plus": _plus(),
    "times": _plus(45),
    "pentagon": _polygon(5),
    "star": _polygon(5, -90, 1.5, 0.45),
    "hexagon": _polygon(6),
    "cross": "m-4,-4l8,8m0,-8l-8,8",
}
CYCLE = tuple(SHAPES)[:-1]


def path(shape: str, places: Iterable[tuple[float, float]], *, hollow: bool = False) -> str:
    """One element for all places; an unknown shape is a circle."""
    form = SHAPES.get(shape, SHAPES["circle"])
    d = "".join(f"M{number(x)},{number(y)}{form}" for x, y in places)
    if not d:
        return ""
    if shape == "cross":
        return f'<path class="k-solid" d="{d}"/>'
    return f'<path class="{"paper k-line" if hollow else "fill"}" d="{d}"/>'
