"""The style of all figures: colours for light and dark backgrounds, strokes, fonts.

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
    """Return the text of a file of this package."""
    return (files("dualml.report.draw") / name).read_text(encoding="utf-8")


_DATA = tomllib.loads(_read("palette.toml"))
#: Name → colour on a light and on a dark background.
COLORS: dict[str, list[str]] = _DATA["colors"]
#: Kind of series → name → colour, in the order of the legend.
SERIES: dict[str, dict[str, str]] = _DATA["series"]
#: Name → width in pixels, dashes, opacity.
STROKES: dict[str, tuple[float, str, float]] = _DATA["strokes"]
#: Colours assigned in this order to series without a colour of their own.
CYCLE: tuple[str, ...] = tuple(_DATA["cycle"])


def css(*, page: bool = True) -> str:
    """Return the CSS of figures; for a ``page`` it also sets their size and the rules that the
    script needs."""
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
    """Return the CSS rules of one colour scheme: 0 for light, 1 for dark."""
    paper, ink, line = (COLORS[name][scheme] for name in ("paper", "ink", "line"))
    return [
        *(f".fig .c-{name} {{ color: {pair[scheme]}; }}" for name, pair in COLORS.items()),
        f"svg.fig {{ color: {ink}; }} .fig .paper {{ fill: {paper}; }}",
        f".fig .halo, .fig .m rect {{ stroke: {paper}; }} .fig .m rect {{ stroke-width: .5px; }}",
        ".fig .m .band { stroke: none; }",
        f".fig .m .frame {{ stroke: {line}; stroke-width: 1px; }}",
        f".fig .swatch {{ stroke: {line}; stroke-opacity: .5; }}",
    ]
