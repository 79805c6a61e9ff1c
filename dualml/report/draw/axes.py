"""Axes about a panel: grid, ticks, labels, title."""

from __future__ import annotations

from collections.abc import Iterator

from dualml.report.draw import text
from dualml.report.draw.palette import LETTER, SMALL
from dualml.report.draw.places import TICKS, Place
from dualml.report.draw.scales import Scale
from dualml.report.draw.text import number, path

#: Paths of an axis: grid at a place, the axis itself, a tick of a length there.
X = ("M{at},0V{height}", "M0,{height}H{width}", "M{at},{height}v{n}")
Y = ("M0,{at}H{width}", "M0,0V{height}", "M0,{at}h-{n}")


def axes(p: Place) -> str:
    return "".join((*_x(p), *_y(p), *_title(p)))


def _lines(p: Place, scale: Scale, grid: str, line: str, tick: str) -> str:
    if scale.axis.names:
        return ""
    ends = {"width": number(p.width), "height": number(p.height)}
    at, small = ([number(scale(v)) for v in vs] for vs in (dict(scale.ticks()), scale.small()))
    back = "".join(grid.format(at=v, **ends) for v in at) if scale.axis.grid else ""
    ticks = [(v, 4) for v in at] + [(v, 2.5) for v in small]
    drawn = "".join(tick.format(at=v, n=n, **ends) for v, n in ticks)
    return path(back, "c-grid k-axis") + path(line.format(**ends) + drawn, "c-line k-axis")


def _x(p: Place) -> Iterator[str]:
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
        y = p.height + p.below() - 9 if p.x_ticks else p.height + TICKS - 4
        yield text.label(p.width / 2, y, text.cut(axis.label, p.before() + p.width), align="center")


def _y(p: Place) -> Iterator[str]:
    axis = p.panel.y
    if not axis.hidden:
        yield _lines(p, p.y, *Y)
        classes = f"small {'c-ink' if axis.names else 'c-muted'}"
        for value, name in p.y.ticks() if p.y_ticks else ():
            yield text.label(-7, p.y(value), text.cut(name, p.room, SMALL), classes, align="right")
        if axis.label and p.y_label:
            label = text.cut(axis.label, p.height + p.above() + p.below())
            yield text.label(9 - p.before(), p.height / 2, label, align="center", turned=True)
    for row, beside in enumerate(axis.beside):
        yield text.label(p.width + 8, p.y(row), text.cut(beside, p.room, SMALL), "small c-muted")


def _title(p: Place) -> Iterator[str]:
    if p.panel.title:
        color = p.styles.style(p.panel.owner).color
        title = text.cut(p.panel.title, p.width + p.after(), 1.08 * LETTER)  # bold is wider
        yield text.label(0, -12, title, f"bold c-{color}")
