"""Figures as data: panels with axes and marks, drawn by `dualml.report.draw`.

A mark names its series (`SeriesId`); the legend entries of the figure set the style of each arm,
backend and series. They also make the one legend, where each toggles an arm or a backend in all
panels.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

if TYPE_CHECKING:  # a table for the terminal must not wait for NumPy
    import numpy as np
    from numpy.typing import NDArray

#: Width of a page in pixels; the font size is the same in all figures.
WIDTH = 880

Values: TypeAlias = "Sequence[float] | NDArray[np.float64]"
Kind: TypeAlias = Literal["arm", "backend", "series"]
#: Kinds of legend entries in order of precedence.
KINDS: tuple[Kind, ...] = ("series", "arm", "backend")


@dataclass(frozen=True)
class SeriesId:
    """The series that a mark belongs to: an arm, a backend, or (``series``) a strategy, a part of
    an update, a kind of link, a fit."""

    arm: str = ""
    backend: str = ""
    series: str = ""

    def name_for(self, kind: Kind) -> str:
        """Return the name of the arm, the backend or the series, as ``kind`` says; empty if there
        is none."""
        return str(getattr(self, kind))


NOBODY = SeriesId()


@dataclass(frozen=True)
class LegendEntry:
    """The style of an arm, a backend or a series, and its entry in the legend.

    What an entry leaves empty is set by another entry of the same mark: an arm sets the colour, its
    backend the stroke. Without any entry a mark is a solid line in ink.

    Args:
        label: text in the legend; the name if it is empty.
        color, stroke, marker: names in `palette.COLORS`, `palette.STROKES`, `text.SHAPES` of
            `dualml.report.draw`; ``hollow`` leaves a marker white inside.
        pale: drawn half transparent.
        listed: whether the legend lists it, where it can be toggled.
    """

    kind: Kind
    name: str
    label: str = ""
    color: str = ""
    stroke: str = ""
    marker: str = ""
    hollow: bool = False
    pale: bool = False
    listed: bool = True


@dataclass(frozen=True)
class LineMark:
    """A curve or points; NaN interrupts it.

    Args:
        low, high: a band around the curve, or with ``bars`` an error bar at every point, along y or
            (values of x) along x.
        joined: False for points only, which need a marker.
        marker, hollow, dashed: override the style of the legend entries; "none" is no marker.
        weight: "main" as the legend entries set it, "thin" a hairline, "faint" the noise behind a
            mean.
        shift: pixels to the side (along y if that axis has names), so that equal points of several
            backends can be told apart; the values are unchanged.
        hints: a text for each point, shown under the pointer instead of its two values.
    """

    x: Values
    y: Values
    owner: SeriesId = NOBODY
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
    """A pale area between ``low`` and ``high`` without a curve; None extends it to the edge."""

    x: Values
    low: Values | None
    high: Values | None
    owner: SeriesId = NOBODY


@dataclass(frozen=True)
class Bar:
    """A horizontal bar from ``left`` over ``width`` in row ``y``, with ``text`` at its end."""

    y: float
    width: float
    owner: SeriesId = NOBODY
    left: float = 0.0
    height: float = 0.66
    text: str = ""


@dataclass(frozen=True)
class BoxMark:
    """A filled rectangle with text inside if it fits, e.g. a pass in a timeline or a rank in a
    drawing.

    ``tone`` from 0, the full colour, to 1, its palest; ``frame``: an outline on a light background.
    """

    x: float
    y: float
    width: float
    height: float
    owner: SeriesId = NOBODY
    text: str = ""
    tone: float = 0.0
    frame: bool = False
    hint: str = ""


@dataclass(frozen=True)
class Heatmap:
    """A matrix as shades from 0 to ``top``: row r is centred at y = r, column c at x = c.

    NaN stays empty. Numbers are printed in the cells if they fit; ``empty`` is printed across a row
    of zeros (without it, zeros are printed as numbers). ``label`` names the scale of shades in the
    legend.
    """

    table: Sequence[Sequence[float]] | NDArray[np.float64]
    top: float
    label: str
    empty: str = ""


@dataclass(frozen=True)
class Arrow:
    """An arrow from (x0, y0) to (x1, y1): ``dot`` marks its start and ``text`` stands before it;
    ``both``: a head at each end."""

    x0: float
    y0: float
    x1: float
    y1: float
    owner: SeriesId = NOBODY
    text: str = ""
    dot: bool = False
    both: bool = False


@dataclass(frozen=True)
class TextMark:
    """A text whose lines are centred at y, moved by ``dy`` pixels. It stays visible beyond the
    axes."""

    x: float
    y: float
    text: str
    owner: SeriesId = NOBODY
    align: Literal["left", "center", "right"] = "left"
    bold: bool = False
    muted: bool = False
    small: bool = False
    dy: float = 0.0


@dataclass(frozen=True)
class ReferenceLine:
    """A line across the panel at a reference value (or a band up to ``to``): 0, a margin, the
    ideal."""

    at: float
    to: float | None = None
    axis: Literal["x", "y"] = "y"
    owner: SeriesId = NOBODY
    dashed: bool = False
    faint: bool = False


Mark: TypeAlias = LineMark | Band | Bar | BoxMark | Heatmap | Arrow | TextMark | ReferenceLine


@dataclass(frozen=True)
class Axis:
    """An axis: its scale, range, ticks and label.

    Args:
        scale: "auto" is logarithmic if positive values span a factor of more than ``log_factor``;
            "symlog" is linear below 1.
        low, high: fixed ends; None: the marks decide.
        integer_ticks: only whole numbers are ticks.
        ticks: positions with labels; None: the renderer chooses them, or uses ``names`` for
            positions 0, 1, …, on y from top to bottom.
        beside: a text at the right end of each of these rows (y only).
        flip: whether values grow downwards (y only).
        hidden: draw neither line nor ticks nor grid.
    """

    label: str = ""
    scale: Literal["linear", "auto", "log", "log2", "symlog"] = "linear"
    low: float | None = None
    high: float | None = None
    log_factor: float = 30.0
    integer_ticks: bool = False
    ticks: Sequence[tuple[float, str]] | None = None
    names: Sequence[str] = ()
    beside: Sequence[str] = ()
    flip: bool = False
    grid: bool = True
    hidden: bool = False


@dataclass(frozen=True)
class Panel:
    """A plot with two axes. ``height``: pixels of the plot area; ``weight``: width relative to
    other columns.

    The title has the colour of ``owner``. Labels that a neighbour repeats are shown once.
    """

    marks: Sequence[Mark]
    x: Axis = Axis()
    y: Axis = Axis()
    title: str = ""
    height: float = 240.0
    weight: float = 1.0
    owner: SeriesId = NOBODY


@dataclass(frozen=True)
class Figure:
    """Panels in rows of ``columns``; None leaves a place empty. The anchor is ``figure-NAME``.

    Args:
        alt: alternative text: the content of the figure in words.
        entries: the styles of series, in the order of the legend.
        width: in pixels; `WIDTH` fills the page.
        share_x, share_y: which panels share one range: those of a column, of a row, or all.
    """

    name: str
    caption: str
    alt: str
    panels: Sequence[Panel | None]
    entries: Sequence[LegendEntry] = ()
    columns: int = 1
    width: float = WIDTH
    share_x: Literal["", "column", "all"] = ""
    share_y: Literal["", "row", "all"] = ""
