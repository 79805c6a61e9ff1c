"""The frame of a figure: axes with grid, ticks, labels and titles, and one legend that lists what
is drawn in the order of the figure's entries."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from dualml.report.draw import text
from dualml.report.draw.palette import LETTER, SMALL
from dualml.report.draw.panels import TICKS, PlacedPanel, Styles, iter_marks, owner_of
from dualml.report.draw.scales import Scale
from dualml.report.draw.text import element, number, path, translate
from dualml.report.figure import (
    Band,
    Bar,
    BoxMark,
    Figure,
    Heatmap,
    LegendEntry,
    Mark,
    ReferenceLine,
)

#: Paths of an axis: a grid line, the axis itself, a tick of length n.
X = ("M{at},0V{height}", "M0,{height}H{width}", "M{at},{height}v{n}")
Y = ("M0,{at}H{width}", "M0,0V{height}", "M0,{at}h-{n}")


def render_axes(p: PlacedPanel) -> str:
    """Return the axes and the title of a panel as SVG."""
    return "".join((*_x(p), *_y(p), *_title(p)))


def _lines(p: PlacedPanel, scale: Scale, grid: str, line: str, tick: str) -> str:
    """Return grid, axis line and ticks of one axis as SVG; empty for an axis of names."""
    if scale.axis.names:
        return ""
    ends = {"width": number(p.width), "height": number(p.height)}
    at, small = (
        [number(scale(v)) for v in vs] for vs in (dict(scale.ticks()), scale.minor_ticks())
    )
    back = "".join(grid.format(at=v, **ends) for v in at) if scale.axis.grid else ""
    ticks = [(v, 4) for v in at] + [(v, 2.5) for v in small]
    drawn = "".join(tick.format(at=v, n=n, **ends) for v, n in ticks)
    return path(back, "c-grid k-axis") + path(line.format(**ends) + drawn, "c-line k-axis")


def _x(p: PlacedPanel) -> Iterator[str]:
    """Yield the SVG of the x axis: grid lines, tick labels that do not overlap, and the title;
    nothing for a hidden axis."""
    axis, edge = p.panel.x, -1e9
    if axis.hidden:
        return
    yield _lines(p, p.x, *X)
    for value, name in p.x.ticks() if p.x_ticks else ():
        x, half = p.x(value), text.width(name, SMALL) / 2
        if x - half >= edge + 3:  # a label that would touch the last one is left out
            edge = x + half
            y = p.height + 13 + 6 * name.count("\n")
            yield text.label(x, y, name, "small c-muted", align="center")
    if axis.label and p.x_label:
        y = p.height + p.bottom_margin() - 9 if p.x_ticks else p.height + TICKS - 4
        yield text.label(
            p.width / 2, y, text.truncate(axis.label, p.left_margin() + p.width), align="center"
        )


def _y(p: PlacedPanel) -> Iterator[str]:
    """Yield the SVG of the y axis: grid lines, tick labels and title unless hidden, and the texts
    to the right of its rows."""
    axis = p.panel.y
    if not axis.hidden:
        yield _lines(p, p.y, *Y)
        classes = f"small {'c-ink' if axis.names else 'c-muted'}"
        for value, name in p.y.ticks() if p.y_ticks else ():
            yield text.label(
                -7, p.y(value), text.truncate(name, p.room, SMALL), classes, align="right"
            )
        if axis.label and p.y_label:
            label = text.truncate(axis.label, p.height + p.top_margin() + p.bottom_margin())
            yield text.label(9 - p.left_margin(), p.height / 2, label, align="center", turned=True)
    for row, beside in enumerate(axis.beside):
        yield text.label(
            p.width + 8, p.y(row), text.truncate(beside, p.room, SMALL), "small c-muted"
        )


def _title(p: PlacedPanel) -> Iterator[str]:
    """Yield the title of a panel in the colour of its owner."""
    if p.panel.title:
        color = p.styles.style(p.panel.owner).color
        title = text.truncate(
            p.panel.title, p.width + p.right_margin(), 1.08 * LETTER
        )  # bold is wider
        yield text.label(0, -12, title, f"bold c-{color}")


# --- legend -------------------------------------------------------------------------------------

#: Height of a row of the legend, width of a swatch, and gap between two entries, in pixels.
ROW_HEIGHT, SWATCH_WIDTH, ENTRY_GAP = 22.0, 26.0, 18.0


def render_legend(figure: Figure, styles: Styles) -> tuple[str, float]:
    """Return the legend as SVG, and its height in pixels; an empty text and 0 without entries."""
    parts, x, y = [], 0.0, 0.0
    for inside, width, attributes in (*_entries(figure, styles), *_shades(figure)):
        if x and x + width > figure.width:
            x, y = 0.0, y + ROW_HEIGHT
        parts.append(element("g", inside, **attributes, transform=translate(x, y)))
        x += width + ENTRY_GAP
    return (element("g", *parts, class_="legend"), y + ROW_HEIGHT + 6) if parts else ("", 0.0)


def _entries(figure: Figure, styles: Styles) -> Iterator[tuple[str, float, dict[str, str]]]:
    """Yield content, width in pixels and attributes of each legend entry: the listed entries that a
    mark uses. An entry's rectangle is the pointer target, and the focus ring is drawn around it."""
    drawn = [(mark, owner_of(mark)) for mark in iter_marks(figure)]
    for key in styles.entries.values():
        owned = [mark for mark, owner in drawn if owner.name_for(key.kind) == key.name]
        if owned and key.listed:
            label = text.truncate(key.label or key.name, figure.width - SWATCH_WIDTH - 12)
            width = SWATCH_WIDTH + 8 + text.width(label)
            area = element(
                "rect",
                class_="hit",
                pointer_events="all",
                x=-3,
                y=1,
                width=width + 6,
                height=20,
                rx=3,
            )
            inside = area + _sample(key, owned, styles) + text.label(SWATCH_WIDTH + 6, 11, label)
            yield inside, width, {"class_": "key", "data_of": key.kind, "data_name": key.name}


def _sample(key: LegendEntry, owned: Sequence[Mark], styles: Styles) -> str:
    """Return the sample of a legend entry: a swatch for areas, a marker, or a stroke; lines whose
    strokes are set by other entries show the colour only."""
    color = f"c-{key.color or 'ink'}"
    if all(isinstance(m, Bar | BoxMark | Band) or _is_band(m) for m in owned):
        band = all(isinstance(m, Band | ReferenceLine) for m in owned)
        look = ".2" if band else ".45" if key.pale else None
        return element(
            "rect", class_=f"swatch {color}", fill_opacity=look, x=5, y=5, width=18, height=12, rx=1
        )
    shape = text.markers(key.marker, [(13, 11)], hollow=key.hollow) if key.marker else ""
    strokes = {styles.style(owner_of(m)).stroke for m in owned}
    stroke = key.stroke or ("" if key.marker else "solid" if strokes == {"solid"} else "patch")
    line = path(f"M0,11H{SWATCH_WIDTH:g}", f"k-{stroke}") if stroke else ""
    return element("g", line, shape, class_=color)


def _is_band(mark: Mark) -> bool:
    """Return whether a mark is a reference line with a second end, which is drawn as a band."""
    return isinstance(mark, ReferenceLine) and mark.to is not None


def _shades(figure: Figure) -> Iterator[tuple[str, float, dict[str, str]]]:
    """Yield content, width in pixels and (no) attributes of the colour scale of heatmaps, once for
    each label and top value."""
    for label, top in sorted(
        {(m.label, m.top) for m in iter_marks(figure) if isinstance(m, Heatmap)}
    ):
        end = f"{top:,.4g}"
        width = 172 + text.width(end, SMALL)
        steps = [
            element(
                "rect",
                class_="c-blue",
                fill_opacity=0.04 + 0.96 * k / 11,
                x=14 + 12 * k,
                y=5,
                width=12,
                height=12,
                shape_rendering="crispEdges",
            )
            for k in range(12)
        ]
        ends = text.label(0, 11, "0", "small c-muted"), text.label(164, 11, end, "small c-muted")
        parts = (ends[0], *steps, ends[1], text.label(width, 11, label))
        yield "".join(parts), width + text.width(label), {}
