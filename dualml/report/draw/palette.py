"""The one look of all figures: colours for light and dark, strokes, letters.

Marks are coloured by classes (``c-blue`` sets ``color``, marks use ``currentColor``), so that the
same drawing is right on a white page, on a dark one and on paper.
"""

from __future__ import annotations

import tomllib
from importlib.resources import files

FONTS = (
    "system-ui, -apple-system, 'Segoe UI', 'Helvetica Neue', 'PingFang SC', 'Microsoft YaHei', "
    "'Noto Sans CJK SC', 'Noto Sans SC', 'DejaVu Sans', sans-serif"
)
LETTER, SMALL = 12.5, 11.5  # pixels


def _read(name: str) -> str:
    return (files("dualml.report.draw") / name).read_text(encoding="utf-8")


_DATA = tomllib.loads(_read("palette.toml"))
#: Name → on white, on black.
COLORS: dict[str, list[str]] = _DATA["colors"]
#: Name → width in pixels, dashes, opacity.
STROKES: dict[str, tuple[float, str, float]] = _DATA["strokes"]
#: For arms and others that have no colour of their own, in this order.
CYCLE = ("blue", "vermilion", "green", "pink", "orange", "sky", "grey", "wine", "olive", "indigo")


def css(*, page: bool = True) -> str:
    """The rules for figures, inside a file of their own or in a page: with their size there and
    what the script makes use of."""
    rules = [
        f"svg.fig {{ font: {LETTER:g}px {FONTS}; }}",
        ".fig text { fill: currentColor; } .fig path { fill: none; stroke: currentColor; }",
        f".fig .small {{ font-size: {SMALL:g}px; }}",
        ".fig .bold { font-weight: 600; } .fig .italic { font-style: italic; }",
        ".fig .halo { paint-order: stroke; stroke-width: 4px; stroke-linejoin: round; }",
        ".fig rect { fill: currentColor; } .fig .hit { fill: none; }",
        ".fig .fill { fill: currentColor; stroke: none; } .fig .band { fill-opacity: .12; }",
        *(_read("page.css").splitlines() if page else ()),
    ]
    for name, (width, dashes, alpha) in STROKES.items():
        look = f"stroke-dasharray: {dashes or 'none'}; stroke-opacity: {alpha:g}"
        rules.append(f".fig .k-{name} {{ stroke-width: {width:g}px; {look}; }}")
    dark = "\n".join(f"  {rule}" for rule in _colors(1))
    dark = f"@media screen and (prefers-color-scheme: dark) {{\n{dark}\n}}"
    return "\n".join([*rules, *_colors(0), dark]) + "\n"


def _colors(scheme: int) -> list[str]:
    paper, ink, line = (COLORS[name][scheme] for name in ("paper", "ink", "line"))
    return [
        *(f".fig .c-{name} {{ color: {pair[scheme]}; }}" for name, pair in COLORS.items()),
        f"svg.fig {{ color: {ink}; }} .fig .paper {{ fill: {paper}; }}",
        f".fig .halo, .fig .m rect {{ stroke: {paper}; }} .fig .m rect {{ stroke-width: .5px; }}",
        ".fig .m .band { stroke: none; }",
        f".fig .m .frame {{ stroke: {line}; stroke-width: 1px; }}",
        f".fig .swatch {{ stroke: {line}; stroke-opacity: .5; }}",
    ]
