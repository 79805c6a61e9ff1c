"""One look for all figures: colour by arm, line by framework, SVG that is the same every time."""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dualml.report.model import Run

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Canvas

#: Okabe & Ito 2008, "Color Universal Design": told apart under every common colour blindness.
PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#5B5B5B")
#: Colour and marker of each way to aggregate, the same in every figure.
STRATEGIES = {
    "all_reduce": ("#0072B2", "o"),
    "all_gather": ("#D55E00", "s"),
    "reduce_broadcast": ("#009E73", "^"),
    "parameter_server": ("#CC79A7", "D"),
    "reduce_scatter_all_gather": ("#E69F00", "v"),
    "ring": ("#56B4E9", "P"),
    "tree": ("#5B5B5B", "X"),
    "halving_doubling": ("#882255", "p"),
    "neighbour": ("#999933", "*"),
    "parameter_server_async": ("#332288", "h"),
}
#: Where a rank's time goes.
PARTS = {"compute_s": "#7A9CC6", "wait_s": "#E3B23C", "transfer_s": "#B5473C"}
FONTS = (
    "system-ui, -apple-system, 'Segoe UI', 'Helvetica Neue', 'PingFang SC', 'Microsoft YaHei', "
    "'Noto Sans CJK SC', 'Noto Sans SC', 'DejaVu Sans', sans-serif"
)
WIDTH = 9.2  # inches, the same for all figures, so that their letters are equally large
INK, GRID = "#333333", "#E3E3E3"

_RC: Any = {
    "svg.fonttype": "none",  # text stays text: searchable, and CJK comes from the reader's fonts
    "font.family": "DejaVu Sans",  # shipped with matplotlib, so the layout is the same everywhere
    "font.size": 9.5,
    "axes.titlesize": 10,
    "axes.titlelocation": "left",
    "axes.edgecolor": "#999999",
    "axes.labelcolor": INK,
    "axes.linewidth": 0.8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.unicode_minus": True,
    "grid.color": GRID,
    "grid.linewidth": 0.7,
    "text.color": INK,
    "xtick.color": "#555555",
    "ytick.color": "#555555",
    "legend.frameon": False,
    "path.simplify_threshold": 0.3,
}


@dataclass(frozen=True)
class Figure:
    """An SVG with its caption and what it shows in words (alternative text).

    ``width`` in inches: narrower figures than `WIDTH` stay so, and their letters alike.
    """

    name: str
    svg: str
    caption: str
    alt: str
    width: float = WIDTH


@dataclass(frozen=True)
class Stroke:
    """How a framework's line is drawn: coinciding lines stay visible, dashes over a pale band."""

    style: Any
    width: float
    alpha: float


STROKES = {
    "torch": Stroke("-", 3.2, 0.42),
    "mindspore": Stroke((0, (4.5, 2.2)), 1.5, 1.0),
    "numpy": Stroke((0, (1, 1.8)), 1.7, 1.0),
}
_MORE = (Stroke((0, (6, 2, 1, 2)), 1.4, 1.0), Stroke("-", 0.9, 1.0), Stroke((0, (9, 3)), 1.2, 1.0))


class Look:
    """Colours of the arms and strokes of the backends of one run."""

    def __init__(self, run: Run) -> None:
        self.colors: dict[str, str] = {}
        for arms in run.groups().values():
            self.colors |= {arm: PALETTE[k % len(PALETTE)] for k, arm in enumerate(arms)}
        self.strokes: dict[str, Stroke] = {}
        spare = iter(_MORE * len(run.backends))
        for backend in run.backends:
            stroke = STROKES.get(run.framework(backend))
            if stroke is None or stroke in self.strokes.values():
                stroke = next(spare)
            self.strokes[backend] = stroke

    def order(self, backends: Sequence[str]) -> list[str]:
        """Wide and pale first, so that nothing is hidden."""
        return sorted(backends, key=lambda b: -self.strokes[b].width)

    def line(self, arm: str, backend: str, color: str | None = None) -> dict[str, Any]:
        stroke = self.strokes[backend]
        return {
            "color": color or self.colors[arm],
            "linestyle": stroke.style,
            "linewidth": stroke.width,
            "alpha": stroke.alpha,
        }

    def legend(
        self, canvas: Canvas, arms: dict[str, str], backends: Sequence[str], columns: int = 7
    ) -> None:
        """Above the axes: arms (label → colour) as colours, backends as strokes, in one row."""
        from matplotlib.lines import Line2D

        handles = [Line2D([], [], color=color, linewidth=5, label=a) for a, color in arms.items()]
        handles += [
            Line2D(
                [],
                [],
                color=INK,
                linestyle=self.strokes[b].style,
                linewidth=self.strokes[b].width,
                alpha=self.strokes[b].alpha,
                label=b,
            )
            for b in backends
        ]
        canvas.legend(
            handles=handles,
            loc="outside upper left",
            ncols=min(len(handles), columns),
            handlelength=2.6,
            columnspacing=1.6,
        )


@contextmanager
def canvas(width: float, height: float) -> Iterator[Canvas]:
    """An empty figure of so many inches in the common style, without pyplot's global state."""
    import matplotlib
    from matplotlib.figure import Figure as Made

    with matplotlib.rc_context(_RC), warnings.catch_warnings():
        # The Chinese glyphs come from the reader's browser, not from the font used for layout.
        warnings.filterwarnings("ignore", message="Glyph .* missing from")
        yield Made(figsize=(width, height), layout="constrained")


def svg(made: Canvas, name: str) -> str:
    """The figure as an ``<svg>`` element: no date, ids that differ from every other figure's."""
    import matplotlib

    out = io.StringIO()
    with matplotlib.rc_context({"svg.hashsalt": name, "svg.fonttype": "none"}):
        made.savefig(out, format="svg", metadata={"Date": None, "Creator": None})
    text = out.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>\s*", "", text, flags=re.S)
    text = re.sub(r'<g id="[^"]*">', "<g>", text)  # matplotlib's own, equal in all figures
    text = re.sub(r'<g id="[^"]*"/>\s*', "", text)
    text = re.sub(r"'DejaVu Sans'(, sans-serif)?", FONTS.replace("'", "&quot;"), text)
    return re.sub(r' (?:d|x|y|transform)="[^"]*"', _shorten, text)


def _shorten(attribute: re.Match[str]) -> str:
    """Hundredths of a point are finer than any screen; labels are left alone."""
    return re.sub(r"(\d\.\d{2})\d+", r"\1", attribute[0])


def log_if_wide(axes: Axes, values: Sequence[float], ratio: float = 30.0) -> bool:
    """A logarithmic y axis when the positive ``values`` span more than ``ratio``."""
    positive = [v for v in values if v > 0]
    wide = bool(positive) and max(positive) / min(positive) > ratio
    if wide:
        axes.set_yscale("log", nonpositive="mask")
    return wide


def loss_unit(run: Run) -> str:
    return "nat" if run.experiment.get("loss", "cross_entropy") == "cross_entropy" else "1"


def slug(group: str) -> str:
    """A group's name as a part of a file name."""
    return "".join(c if c.isalnum() else "-" for c in group.lower())
