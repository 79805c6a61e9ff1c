"""Text in SVG: escaped, and as wide as it will be at most in the fonts that readers have."""

from __future__ import annotations

import unicodedata
from xml.sax.saxutils import escape, quoteattr

from dualml.report.draw.palette import LETTER, SMALL

_NARROW, _WIDE = set("iljftrI.,:;|!'()[] ·/\\`"), set("mwMW@%—…")


def width(text: str, size: float = LETTER) -> float:
    """Pixels, an upper estimate: Chinese letters are squares."""
    return size * max((sum(map(_em, line)) for line in text.split("\n")), default=0.0)


def _em(letter: str) -> float:
    if letter in _NARROW:
        return 0.36
    if letter in _WIDE:
        return 0.92
    if unicodedata.east_asian_width(letter) in "WF":
        return 1.0
    return 0.68 if letter.isupper() else 0.585


def cut(text: str, room: float, size: float = LETTER) -> str:
    """As much of a name as there is room for."""
    if width(text, size) <= room:
        return text
    kept = next((k for k in range(len(text), 0, -1) if width(text[:k], size) + size <= room), 1)
    return f"{text[:kept].rstrip(' ,、·')}…"


def number(value: float) -> str:
    """A coordinate: hundredths of a pixel are finer than any screen."""
    text = f"{value:.2f}".rstrip("0").rstrip(".")
    return "0" if text == "-0" else text


def attribute(text: str) -> str:
    """Quoted, and on one line."""
    return quoteattr(text.replace("\n", " "))


def label(
    x: float,
    y: float,
    text: str,
    *,
    align: str = "left",
    classes: str = "",
    size: float = LETTER,
    turned: bool = False,
    more: str = "",
) -> str:
    """Lines of text whose middle is at height ``y``."""
    anchor = {"left": "", "center": ' text-anchor="middle"', "right": ' text-anchor="end"'}[align]
    turn = f' transform="rotate(-90 {number(x)} {number(y)})"' if turned else ""
    lines = text.split("\n")
    first = y + 0.35 * size - 0.6 * size * (len(lines) - 1)
    head = f'<text x="{number(x)}" y="{number(first)}"{anchor}{turn}{more}'
    head += f' class="{classes}">' if classes else ">"
    if len(lines) == 1:
        return f"{head}{escape(text)}</text>"
    rows = "".join(
        f'<tspan x="{number(x)}" dy="{number(1.2 * size if k else 0)}">{escape(line)}</tspan>'
        for k, line in enumerate(lines)
    )
    return f"{head}{rows}</text>"


__all__ = ["LETTER", "SMALL", "attribute", "cut", "escape", "label", "number", "width"]
