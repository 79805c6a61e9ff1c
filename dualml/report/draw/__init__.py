"""The one renderer: a `Figure` as SVG, the same bytes every time.

`draw` gives an element for a page that holds `css` once, and `script` where it shall answer the
pointer; `standalone` makes a file of its own of it.
"""

from __future__ import annotations

import re
from importlib.resources import files

from dualml.report.draw.axes import axes, head
from dualml.report.draw.layout import place
from dualml.report.draw.legend import legend
from dualml.report.draw.marks import ordered, svg
from dualml.report.draw.palette import css
from dualml.report.draw.places import Place
from dualml.report.draw.styles import Styles
from dualml.report.draw.text import attribute, number
from dualml.report.figure import Figure

__all__ = ["css", "draw", "script", "standalone"]

#: Finds the point nearest to the pointer. Of the libraries that do, this one is small (19 KB), does
#: nothing else and is kept by the people of D3: https://github.com/d3/d3-delaunay, ISC licence.
LIBRARY = "vendor/d3-delaunay-6.0.4.min.js"


def draw(figure: Figure) -> str:
    """The figure as an ``<svg>`` element, complete without scripts."""
    shown = Styles(figure)
    above, top = legend(figure, shown)
    placed, height = place(figure, top)
    parts = [above]
    for k, p in enumerate(placed):
        clip = re.sub(r"[^\w-]", "-", f"clip-{figure.name}-{k}")
        where = Place(p.x, p.y, p.width, p.panel.height, shown, clip)
        marks = "".join(svg(mark, where) for mark in ordered(p.panel.marks, shown))
        parts += [head(p), axes(p, shown), where.area() if clip in marks else "", marks, "</g>"]
    width = number(figure.width)
    return (
        f'<svg class="fig" xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} '
        f'{number(height)}" width="{width}" height="{number(height)}" role="img" '
        f'style="--width: {width}px" '
        f"aria-label={attribute(figure.alt)}>{''.join(parts)}</svg>"
    )


def standalone(figure: Figure) -> str:
    """The same as a file: with its colours, on a ground of its own."""
    text = draw(figure)
    start = text.index(">") + 1
    ground = '<rect class="paper" x="-50%" y="-50%" width="200%" height="200%"/>'
    return f"{text[:start]}<style>\n{css(page=False)}</style>{ground}{text[start:]}\n"


def script() -> str:
    """What lets the figures of a page answer, for one ``<script>`` at its end; loads nothing."""
    folder = files("dualml.report.draw")
    return "".join((folder / name).read_text(encoding="utf-8") for name in (LIBRARY, "figure.js"))
