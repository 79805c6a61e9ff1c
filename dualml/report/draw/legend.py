"""The one legend of a figure: what is drawn in it, in the order of its keys."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from dualml.report.draw import markers, text
from dualml.report.draw.palette import SMALL
from dualml.report.draw.styles import Styles, marks
from dualml.report.draw.text import attribute, number
from dualml.report.figure import NOBODY, Band, Bar, Box, Cells, Figure, Key, Mark, Rule

ROW, SWATCH, BETWEEN = 22.0, 26.0, 18.0


@dataclass(frozen=True)
class Entry:
    key: Key
    sample: str
    label: str
    width: float


def legend(figure: Figure, styles: Styles) -> tuple[str, float]:
    """And its height."""
    entries = list(_entries(figure, styles))
    parts, x, y = [], 0.0, 0.0
    for entry in entries:
        if x and x + entry.width > figure.width:
            x, y = 0.0, y + ROW
        parts.append(_placed(entry, x, y))
        x += entry.width + BETWEEN
    for scale, width in _shades(figure):
        if x and x + width > figure.width:
            x, y = 0.0, y + ROW
        parts.append(f'<g transform="translate({number(x)} {number(y)})">{scale}</g>')
        x += width + BETWEEN
    if not parts:
        return "", 0.0
    return f'<g class="legend">{"".join(parts)}</g>', y + ROW + 6


def _placed(entry: Entry, x: float, y: float) -> str:
    """The rectangle is where a pointer finds it and the focus is drawn."""
    area = f'<rect class="hit" pointer-events="all" x="-3" y="1" width="{number(entry.width + 6)}"'
    label = text.label(SWATCH + 6, 11, entry.label)
    return (
        f'<g class="key" data-of="{entry.key.of}" data-name={attribute(entry.key.name)} '
        f'transform="translate({number(x)} {number(y)})">'
        f'{area} height="20" rx="3"/>{entry.sample}{label}</g>'
    )


def _entries(figure: Figure, styles: Styles) -> Iterator[Entry]:
    drawn = list(marks(figure))
    owners = [getattr(m, "owner", NOBODY) for m in drawn]
    for key in styles.keys.values():
        owned = [m for m, o in zip(drawn, owners, strict=True) if o.of(key.of) == key.name]
        if not owned or not key.listed:
            continue
        sample = _sample(key, owned, styles)
        label = text.cut(key.label or key.name, figure.width - SWATCH - 12)
        yield Entry(key, sample, label, SWATCH + 8 + text.width(label))


def _sample(key: Key, owned: list[Mark], styles: Styles) -> str:
    """A swatch of areas, a marker, a stroke; of lines whose stroke others decide the colour."""
    color = key.color or "ink"
    areas = (Bar, Box, Band)
    pale = ' fill-opacity=".45"' if key.pale else ""
    if all(isinstance(m, areas) or (isinstance(m, Rule) and m.to is not None) for m in owned):
        band = all(isinstance(m, Band | Rule) for m in owned)
        look = ' fill-opacity=".2"' if band else pale
        return f'<rect class="swatch c-{color}"{look} x="5" y="5" width="18" height="12" rx="1"/>'
    shape = markers.path(key.marker, [(13, 11)], hollow=key.hollow) if key.marker else ""
    strokes = {styles.style(getattr(m, "owner", NOBODY)).stroke for m in owned}
    stroke = key.stroke or ("" if key.marker else "solid" if strokes == {"solid"} else "patch")
    line = f'<path class="k-{stroke}" d="M0,11H{SWATCH:g}"/>' if stroke else ""
    return f'<g class="c-{color}">{line}{shape}</g>'


def _shades(figure: Figure) -> Iterator[tuple[str, float]]:
    """The scale of a matrix, each once."""
    scales = {(m.label, m.top) for m in marks(figure) if isinstance(m, Cells)}
    for label, top in sorted(scales):
        steps = "".join(
            f'<rect class="c-blue" fill-opacity="{number(0.04 + 0.96 * k / 11)}" '
            f'x="{14 + 12 * k}" y="5" width="12" height="12" shape-rendering="crispEdges"/>'
            for k in range(12)
        )
        end = f"{top:,.4g}"
        width = text.width(end, SMALL)
        parts = [
            text.label(0, 11, "0", classes="small c-muted", size=SMALL),
            steps,
            text.label(164, 11, end, classes="small c-muted", size=SMALL),
            text.label(172 + width, 11, label),
        ]
        yield "".join(parts), 172 + width + text.width(label)
