"""Axes about a panel: grid, ticks, labels, title."""

from __future__ import annotations

from collections.abc import Iterator

from dualml.report.draw import text
from dualml.report.draw.palette import LETTER, SMALL
from dualml.report.draw.places import TICKS, Place
from dualml.report.draw.text import number, path


def axes(p: Place) -> str:
    return "".join((*_x(p), *_y(p), *_title(p)))


def _x(p: Place) -> Iterator[str]:
    axis, end = p.panel.x, number(p.height)
    if axis.hidden:
        return
    ticks = [(p.x(v), name) for v, name in p.x.ticks()]
    if not axis.names:
        if axis.grid:
            yield path("".join(f"M{number(x)},0V{end}" for x, _ in ticks), "c-grid k-axis")
        ends = "".join(f"M{number(x)},{end}v4" for x, _ in ticks)
        ends += "".join(f"M{number(p.x(v))},{end}v2.5" for v in p.x.small())
        yield path(f"M0,{end}H{number(p.width)}{ends}", "c-line k-axis")
    if p.x_ticks:
        edge = -1e9
        for x, name in ticks:  # a label that would touch the last one is left out
            half = text.width(name, SMALL) / 2
            if x - half >= edge + 3:
                edge = x + half
                y = p.height + 13 + 6 * name.count("\n")
                yield text.label(x, y, name, "small c-muted", align="center")
    if axis.label and p.x_label:
        y = p.height + p.below() - 9 if p.x_ticks else p.height + TICKS - 4
        yield text.label(p.width / 2, y, text.cut(axis.label, p.before() + p.width), align="center")


def _y(p: Place) -> Iterator[str]:
    axis, end = p.panel.y, number(p.width)
    if not axis.hidden:
        ticks = [(p.y(v), name) for v, name in p.y.ticks()]
        if not axis.names:
            if axis.grid:
                yield path("".join(f"M0,{number(y)}H{end}" for y, _ in ticks), "c-grid k-axis")
            ends = "".join(f"M0,{number(y)}h-4" for y, _ in ticks)
            ends += "".join(f"M0,{number(p.y(v))}h-2.5" for v in p.y.small())
            yield path(f"M0,0V{number(p.height)}{ends}", "c-line k-axis")
        if p.y_ticks:
            classes = f"small {'c-ink' if axis.names else 'c-muted'}"
            for y, name in ticks:
                yield text.label(-7, y, text.cut(name, p.room, SMALL), classes, align="right")
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
