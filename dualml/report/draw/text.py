"""SVG elements: escaped text with an upper estimate of its width, and markers as paths."""

from __future__ import annotations

import itertools
import math
import unicodedata
from cmath import rect
from collections.abc import Iterable, Sequence
from xml.sax.saxutils import escape, quoteattr

from dualml.report.draw.palette import LETTER, SMALL

_NARROW, _WIDE = set("iljftrI.,:;|!'()[] ·/\\`"), set("mwMW@%—…")
_ANCHORS = {"left": "", "center": "middle", "right": "end"}


def width(text: str, size: float = LETTER) -> float:
    """Return an upper estimate of the width of a text in pixels, of several lines the widest;
    Chinese characters are squares."""
    return size * max((sum(map(_em, line)) for line in text.split("\n")), default=0.0)


def _em(letter: str) -> float:
    """Return the estimated width of a letter relative to the font size."""
    if letter in _NARROW:
        return 0.36
    if letter in _WIDE:
        return 0.92
    if unicodedata.east_asian_width(letter) in "WF":
        return 1.0
    return 0.68 if letter.isupper() else 0.585


def truncate(text: str, room: float, size: float = LETTER) -> str:
    """Return a text truncated with an ellipsis to at most ``room`` pixels; unchanged if it fits.
    One character is always kept."""
    if width(text, size) <= room:
        return text
    kept = next((k for k in range(len(text), 0, -1) if width(text[:k], size) + size <= room), 1)
    return f"{text[:kept].rstrip(' ,、·')}…"


def number(value: float) -> str:
    """Format a coordinate with at most two decimals, finer than any screen."""
    text = f"{value:.2f}".rstrip("0").rstrip(".")
    return "0" if text == "-0" else text


def element(tag: str, *inside: str, **attributes: str | float | None) -> str:
    """Return an SVG element on one line, with the markup ``inside``, which is not escaped.
    Attributes are quoted and numbers formatted as coordinates; None and empty ones are left out.
    ``class_`` becomes ``class``, ``data_of`` becomes ``data-of``."""
    shown = "".join(
        f" {name.rstrip('_').replace('_', '-')}={_quoted(value)}"
        for name, value in attributes.items()
        if value is not None and value != ""
    )
    return f"<{tag}{shown}>{''.join(inside)}</{tag}>" if inside else f"<{tag}{shown}/>"


def _quoted(value: str | float) -> str:
    """Return the quoted value of an attribute: numbers as coordinates, texts escaped and on one
    line."""
    return quoteattr(value.replace("\n", " ") if isinstance(value, str) else number(value))


def coordinates(x: float, y: float) -> str:
    """Return a point of a path, ``x,y``."""
    return f"{number(x)},{number(y)}"


def translate(x: float, y: float) -> str:
    """Return the value of a ``transform`` attribute that moves an element by (x, y) pixels."""
    return f"translate({number(x)} {number(y)})"


def path(d: str, classes: str = "") -> str:
    """Return a path element, empty for empty path data."""
    return element("path", class_=classes, d=d) if d else ""


def label(
    x: float,
    y: float,
    text: str,
    classes: str = "",
    *,
    align: str = "left",
    size: float = 0.0,
    turned: bool = False,
) -> str:
    """Return a text element for lines that begin (``align`` left), are centred (center) or end
    (right) at ``x`` and are vertically centred at ``y``, in pixels; ``classes`` are CSS classes,
    ``size`` in pixels overrides their size, ``turned`` makes the text read upwards."""
    turn = f"rotate(-90 {number(x)} {number(y)})" if turned else ""
    letter = size or (SMALL if "small" in classes else LETTER)
    lines = text.split("\n")
    first = y + 0.35 * letter - 0.6 * letter * (len(lines) - 1)
    rows = (
        [escape(text)]
        if len(lines) == 1
        else [
            element("tspan", escape(line), x=x, dy=1.2 * letter if k else 0)
            for k, line in enumerate(lines)
        ]
    )
    return element(
        "text",
        *rows,
        x=x,
        y=first,
        text_anchor=_ANCHORS[align],
        transform=turn,
        font_size=size or None,
        class_=classes,
    )


# --- markers --------------------------------------------------------------------------------------

RADIUS = 3.4


def _closed_path(corners: Sequence[complex]) -> str:
    """Return closed path data through the corners, which are complex numbers x + iy in pixels."""
    steps = (f"l{_point(b - a)}" for a, b in itertools.pairwise(corners))
    return f"m{_point(corners[0])}{''.join(steps)}z"


def _point(z: complex) -> str:
    """Return a complex number x + iy as a point of a path, ``x,y``."""
    return coordinates(z.real, z.imag)


def _polygon(n: int, turn: float, *sizes: float) -> str:
    """Return path data of a regular polygon with ``n`` corners, beginning at its first corner in
    direction ``turn`` (degrees); sizes are relative to `RADIUS`, two alternating ones make a
    star."""
    radii = itertools.cycle(RADIUS * size for size in sizes)
    return _closed_path([rect(next(radii), math.radians(turn + 360 * k / n)) for k in range(n)])


def _plus(turn: float) -> str:
    """Return the path data of a plus sign turned by ``turn`` degrees."""
    a, b = RADIUS * 0.38, RADIUS * 1.2
    quarter = (complex(-a, -b), complex(a, -b), complex(a, -a))
    return _closed_path(
        [z * 1j**k * rect(1, math.radians(turn)) for k in range(4) for z in quarter]
    )


_R, _D = number(RADIUS), number(2 * RADIUS)
#: Name → path of a filled shape around its centre. ``cross`` is two strokes: an aborted trial.
SHAPES = {
    "circle": f"m-{_R},0a{_R},{_R} 0 1,0 {_D},0a{_R},{_R} 0 1,0 -{_D},0z",
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
MARKERS = tuple(SHAPES)[:-1]


def markers(shape: str, places: Iterable[tuple[float, float]], *, hollow: bool = False) -> str:
    """Return one path with a marker at each place (x, y) in pixels, empty without places; an
    unknown shape is drawn as a circle."""
    form = SHAPES.get(shape, SHAPES["circle"])
    classes = "k-solid" if shape == "cross" else "paper k-line" if hollow else "fill"
    return path("".join(f"M{coordinates(x, y)}{form}" for x, y in places), classes)
