"""Axes about a panel: grid, ticks, labels, title."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape

from dualml.report.draw import text
from dualml.report.draw.layout import TICKS, Placed
from dualml.report.draw.palette import SMALL
from dualml.report.draw.styles import Styles
from dualml.report.draw.text import number


def axes(p: Placed, styles: Styles) -> str:
    return "".join((*_x(p), *_y(p), *_title(p, styles)))


def _x(p: Placed) -> Iterator[str]:
    axis, height = p.panel.x, p.panel.height
    if axis.hidden:
        return
    ticks, small = [(p.x(v), name) for v, name in p.x.ticks()], [p.x(v) for v in p.x.small()]
    if axis.grid and not axis.names:
        yield _strokes("c-grid", "".join(f"M{number(x)},0V{number(height)}" for x, _ in ticks))
    if not axis.names:
        ends = "".join(f"M{number(x)},{number(height)}v4" for x, _ in ticks)
        ends += "".join(f"M{number(x)},{number(height)}v2.5" for x in small)
        yield _strokes("c-line", f"M0,{number(height)}H{number(p.width)}{ends}")
    if p.x_ticks:
        edge = -1e9
        for x, name in ticks:  # a label that would touch the last one is left out
            half = text.width(name, SMALL) / 2
            if x - half >= edge + 3:
                edge = x + half
                lines = name.count("\n")
                yield text.label(x, height + 13 + 6 * lines, name, align="center",
                                 classes="small c-muted", size=SMALL)  # fmt: skip
    if axis.label and p.x_label:
        y = height + p.below() - 9 if p.x_ticks else height + TICKS - 4
        yield text.label(p.width / 2, y, text.cut(axis.label, p.before() + p.width), align="center")


def _y(p: Placed) -> Iterator[str]:
    axis = p.panel.y
    if not axis.hidden:
        ticks = [(p.y(v), name) for v, name in p.y.ticks()]
        small = [p.y(v) for v in p.y.small()]
        if axis.grid and not axis.names:
            yield _strokes("c-grid", "".join(f"M0,{number(y)}H{number(p.width)}" for y, _ in ticks))
        if not axis.names:
            ends = "".join(f"M0,{number(y)}h-4" for y, _ in ticks)
            ends += "".join(f"M0,{number(y)}h-2.5" for y in small)
            yield _strokes("c-line", f"M0,0V{number(p.panel.height)}{ends}")
        if p.y_ticks:
            color = "c-ink" if axis.names else "c-muted"
            for y, name in ticks:
                name = text.cut(name, p.room, SMALL)
                yield text.label(-7, y, name, align="right", classes=f"small {color}", size=SMALL)
        if axis.label and p.y_label:
            at = 9 - p.before()
            tall = p.panel.height + p.above() + p.below()
            label = text.cut(axis.label, tall)
            yield text.label(at, p.panel.height / 2, label, align="center", turned=True)
    for row, beside in enumerate(axis.beside):
        kept = text.cut(beside, p.room, SMALL)
        yield text.label(p.width + 8, p.y(row), kept, classes="small c-muted", size=SMALL)


def _title(p: Placed, styles: Styles) -> Iterator[str]:
    if p.panel.title:
        color = styles.style(p.panel.owner).color
        title = text.cut(p.panel.title, p.width + p.after(), 1.08 * text.LETTER)  # bold is wider
        yield text.label(0, -12, title, classes=f"bold c-{color}")


def _strokes(color: str, d: str) -> str:
    return f'<path class="{color} k-axis" d="{d}"/>' if d else ""


def head(p: Placed) -> str:
    """The opening tag of a panel, with what the script needs to know of it."""
    labels = "".join(
        f' data-{name}="{escape(axis.label)}"'
        for name, axis in (("x", p.panel.x), ("y", p.panel.y))
        if axis.label
    )
    size = f'data-size="{number(p.width)},{number(p.panel.height)}"'
    move = f'transform="translate({number(p.left)} {number(p.top)})"'
    return f'<g class="panel" {move} {size}{labels}>'
