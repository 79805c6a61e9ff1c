"""The renderer of all figures: a `Figure` as deterministic SVG.

`draw` returns an element for a page that includes `css` once, and `script` if it is interactive;
`standalone` returns a complete file.
"""

from __future__ import annotations

from importlib.resources import files

from dualml.report.draw.frame import render_axes, render_legend
from dualml.report.draw.layout import place_panels
from dualml.report.draw.marks import order_marks, svg
from dualml.report.draw.palette import css
from dualml.report.draw.panels import Styles
from dualml.report.draw.text import coordinates, element, number, translate
from dualml.report.figure import Figure

__all__ = ["css", "draw", "script", "standalone"]

#: Finds the point nearest to the pointer. This library is small (19 KB), does
#: nothing else and is maintained by the D3 project: https://github.com/d3/d3-delaunay, ISC licence.
LIBRARY = "vendor/d3-delaunay-6.0.4.min.js"


def draw(figure: Figure) -> str:
    """Return the figure as an ``<svg>`` element for a page that includes `css`; it needs no
    script."""
    styles = Styles(figure)
    above, top = render_legend(figure, styles)
    panels, height = place_panels(figure, styles, top)
    parts = [above]
    for p in panels:
        marks = "".join(svg(mark, p) for mark in order_marks(p.panel.marks, styles))
        parts.append(
            element(
                "g",
                render_axes(p),
                p.clip_element() if p.clip in marks else "",
                marks,
                class_="panel",
                transform=translate(p.left, p.top),
                data_size=coordinates(p.width, p.height),
                data_x=p.panel.x.label,
                data_y=p.panel.y.label,
            )
        )
    return element(
        "svg",
        *parts,
        class_="fig",
        xmlns="http://www.w3.org/2000/svg",
        viewBox=f"0 0 {number(figure.width)} {number(height)}",
        width=figure.width,
        height=height,
        role="img",
        style=f"--width: {number(figure.width)}px",
        aria_label=figure.alt,
    )


def standalone(figure: Figure) -> str:
    """Return the figure as a complete SVG file with its own style and background."""
    text = draw(figure)
    start = text.index(">") + 1
    ground = '<rect class="paper" x="-50%" y="-50%" width="200%" height="200%"/>'
    return f"{text[:start]}<style>\n{css(page=False)}</style>{ground}{text[start:]}\n"


def script() -> str:
    """Return the JavaScript that makes figures interactive, for one ``<script>`` at the end of a
    page; it loads nothing."""
    folder = files("dualml.report.draw")
    return "".join((folder / name).read_text(encoding="utf-8") for name in (LIBRARY, "figure.js"))
