"""Elements of SVG, and text in them: escaped, and as wide as it will be at most in the fonts that
readers have."""

from __future__ import annotations

import unicodedata
from xml.sax.saxutils import escape, quoteattr

from dualml.report.draw.palette import LETTER, SMALL

_NARROW, _WIDE = set("iljftrI.,:;|!'()[] ·/\\`"), set("mwMW@%—…")
_ANCHORS = {"left": "", "center": "middle", "right": "end"}


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


def element(tag: str, *inside: str, **attributes: str | float | None) -> str:
    """Attributes are quoted, on one line, numbers as coordinates; those that are None or empty are
    left out. ``class_`` is ``class``, ``data_of`` is ``data-of``."""
    shown = "".join(
        f" {name.rstrip('_').replace('_', '-')}={_quoted(value)}"
        for name, value in attributes.items()
        if value is not None and value != ""
    )
    return f"<{tag}{shown}>{''.join(inside)}</{tag}>" if inside else f"<{tag}{shown}/>"


def _quoted(value: str | float) -> str:
    return quoteattr(value.replace("\n", " ") if isinstance(value, str) else number(value))


def at(x: float, y: float) -> str:
    """A point of a path."""
    return f"{number(x)},{number(y)}"


def move(x: float, y: float) -> str:
    return f"translate({number(x)} {number(y)})"


def path(d: str, classes: str = "") -> str:
    """Nothing where there is nothing to draw."""
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
    """Lines of text whose middle is at height ``y``; ``size`` where the classes do not say it."""
    turn = f"rotate(-90 {number(x)} {number(y)})" if turned else ""
    letter = size or (SMALL if "small" in classes else LETTER)
    lines = text.split("\n")
    first = y + 0.35 * letter - 0.6 * letter * (len(lines) - 1)
    rows = [escape(text)] if len(lines) == 1 else [
        element("tspan", escape(line), x=x, dy=1.2 * letter if k else 0)
        for k, line in enumerate(lines)
    ]  # fmt: skip
    return element("text", *rows, x=x, y=first, text_anchor=_ANCHORS[align], transform=turn,
                   font_size=size or None, class_=classes)  # fmt: skip
