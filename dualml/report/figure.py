"""A figure as data: panels with axes and marks; `dualml.report.draw` draws them all.

A mark says whose it is (`Owner`); the figure's keys say how each arm, backend and series is shown.
From the keys come the one legend and the switches that hide an arm or a backend in all panels.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

if TYPE_CHECKING:  # a table for the terminal must not wait for NumPy
    import numpy as np
    from numpy.typing import NDArray

#: Pixels between the margins of a page; letters are equally large in all figures.
WIDTH = 880

Values: TypeAlias = "Sequence[float] | NDArray[np.float64]"
Kind: TypeAlias = Literal["arm", "backend", "series"]
#: In the order in which their keys decide.
KINDS: tuple[Kind, ...] = ("series", "arm", "backend")


@dataclass(frozen=True)
class Owner:
    """Whose mark it is. ``series``: a strategy, a part of an update, a kind of link, a fit."""

    arm: str = ""
    backend: str = ""
    series: str = ""

    def of(self, kind: Kind) -> str:
        return str(getattr(self, kind))


NOBODY = Owner()


@dataclass(frozen=True)
class Key:
    """How an arm, a backend or a series is shown, and its entry in the legend.

    What a key leaves empty is decided by another key of the same mark: an arm gives the colour, its
    backend the stroke. Without any a mark is a solid line in ink.

    Args:
        label: shown in the legend; the name where it is empty.
        color, stroke, marker: names in `palette.COLORS`, `palette.STROKES`, `text.SHAPES` of
            `dualml.report.draw`; ``hollow`` leaves a marker white inside.
        pale: drawn half transparent.
        listed: whether it stands in the legend, where it can be switched off.
    """

    of: Kind
    name: str
    label: str = ""
    color: str = ""
    stroke: str = ""
    marker: str = ""
    hollow: bool = False
    pale: bool = False
    listed: bool = True


@dataclass(frozen=True)
class Line:
    """A curve or points; NaN interrupts it.

    Args:
        low, high: a band about the curve, or with ``bars`` an error bar at every point, along y or
            (values of x) along x.
        joined: False for points alone, which need a marker.
        marker, hollow, dashed: in place of what the keys say; "none" is no marker.
        weight: "main" as the keys say, "thin" a hair line, "faint" the noise behind a mean.
        shift: pixels to the side (along y where names stand on that axis), so that equal points of
            several backends can be told apart; the values stay what they are.
        hints: a text for each point, shown under the pointer in place of its two values.
    """

    x: Values
    y: Values
    owner: Owner = NOBODY
    low: Values | None = None
    high: Values | None = None
    bars: Literal["", "x", "y"] = ""
    joined: bool = True
    marker: str = ""
    hollow: bool | None = None
    dashed: bool = False
    weight: Literal["main", "thin", "faint"] = "main"
    shift: float = 0.0
    hints: Sequence[str] = ()


@dataclass(frozen=True)
class Band:
    """A pale area between ``low`` and ``high`` without a curve of its own, None: to the edge."""

    x: Values
    low: Values | None
    high: Values | None
    owner: Owner = NOBODY


@dataclass(frozen=True)
class Bar:
    """A horizontal bar from ``left`` over ``width`` in row ``y``; ``text`` stands at its end."""

    y: float
    width: float
    owner: Owner = NOBODY
    left: float = 0.0
    height: float = 0.66
    text: str = ""


@dataclass(frozen=True)
class Box:
    """A filled rectangle, text inside where it fits: a pass in a timeline, a rank in a drawing.

    ``tone`` from 0, the full colour, to 1, its palest; ``frame``: an outline on a light ground.
    """

    x: float
    y: float
    width: float
    height: float
    owner: Owner = NOBODY
    text: str = ""
    tone: float = 0.0
    frame: bool = False
    hint: str = ""


@dataclass(frozen=True)
class Cells:
    """A matrix as shades from 0 to ``top``: row r about y = r, column c about x = c.

    NaN stays empty. Numbers stand in the cells where they fit; ``empty`` stands across a row of
    zeros (otherwise zeros are numbers, too). ``label`` names the scale of shades in the legend.
    """

    table: Sequence[Sequence[float]] | NDArray[np.float64]
    top: float
    label: str
    empty: str = ""


@dataclass(frozen=True)
class Arrow:
    """``dot`` at its start and ``text`` before that; ``both``: a head at each end."""

    x0: float
    y0: float
    x1: float
    y1: float
    owner: Owner = NOBODY
    text: str = ""
    dot: bool = False
    both: bool = False


@dataclass(frozen=True)
class Text:
    """Its lines are centred about y; ``dy`` in pixels. Beyond the axes it stays visible."""

    x: float
    y: float
    text: str
    owner: Owner = NOBODY
    align: Literal["left", "center", "right"] = "left"
    bold: bool = False
    muted: bool = False
    small: bool = False
    dy: float = 0.0


@dataclass(frozen=True)
class Rule:
    """A line across the panel (or a band up to ``to``) that means a value: 0, a margin, perfect."""

    at: float
    to: float | None = None
    axis: Literal["x", "y"] = "y"
    owner: Owner = NOBODY
    dashed: bool = False
    faint: bool = False


Mark: TypeAlias = Line | Band | Bar | Box | Cells | Arrow | Text | Rule


@dataclass(frozen=True)
class Axis:
    """How positions become places.

    Args:
        scale: "auto" is logarithmic where positive values span more than ``wide``; "symlog" is
            linear below 1.
        low, high: ends, where the marks shall not decide.
        whole: only whole numbers are ticks.
        ticks: positions with labels; else the renderer chooses, or ``names`` of positions 0, 1, …;
            on y the first stands above.
        beside: a text at the right end of each of these rows (y only).
        hidden: neither line nor ticks nor grid.
    """

    label: str = ""
    scale: Literal["linear", "auto", "log", "log2", "symlog"] = "linear"
    low: float | None = None
    high: float | None = None
    wide: float = 30.0
    whole: bool = False
    ticks: Sequence[tuple[float, str]] | None = None
    names: Sequence[str] = ()
    beside: Sequence[str] = ()
    flip: bool = False
    grid: bool = True
    hidden: bool = False


@dataclass(frozen=True)
class Panel:
    """``height`` in pixels of what the axes enclose; ``weight``: width against other columns.

    The title has the colour of ``owner``. Labels that a neighbour repeats are shown once.
    """

    marks: Sequence[Mark]
    x: Axis = Axis()
    y: Axis = Axis()
    title: str = ""
    height: float = 240.0
    weight: float = 1.0
    owner: Owner = NOBODY


@dataclass(frozen=True)
class Figure:
    """Panels in rows of ``columns``; None leaves a place empty. The anchor is ``figure-NAME``.

    Args:
        alt: what it shows, in words.
        keys: how owners are shown, in the order of the legend.
        width: in pixels; `WIDTH` fills the page.
        share_x, share_y: panels with one range: those of a column, of a row, or all.
    """

    name: str
    caption: str
    alt: str
    panels: Sequence[Panel | None]
    keys: Sequence[Key] = ()
    columns: int = 1
    width: float = WIDTH
    share_x: Literal["", "column", "all"] = ""
    share_y: Literal["", "row", "all"] = ""
