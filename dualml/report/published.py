"""Published all-reduces beside the predictions of the cost model, as tables and a figure."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Iterator, Sequence

from dualml.common.words import Messages, numbers
from dualml.planning.cost.published import PublishedCurve, PublishedTime, curves, summary
from dualml.planning.cost.published import tables as given
from dualml.planning.cost.units import format_seconds
from dualml.report.blocks import Cells, Column, Table
from dualml.report.draw.palette import CYCLE
from dualml.report.figure import Axis, Figure, LegendEntry, LineMark, Mark, Panel, SeriesId

TEXTS = {"curve", "algorithm", "priced", "hardware", "software", "ranks", "source", "path"}
TEXTS |= {"text", "repository", "commit", "read", "licence"}
#: Published curves that are also predicted by another formula, to compare it with the one in use.
ALTERNATIVE_FORMULAS = (("marenostrum-tree", "tree"), ("h200-nvls-ranks", "ring"))
#: Bounds between the ranges of sizes, in bytes.
SMALL, LARGE = 16 * 2**10, 16 * 2**20
#: Curves of each panel.
DRAWN = ("h200-ll", "h200-nvls"), ("marenostrum-ring",), ("marenostrum-tree",), ("leonardo-ring",)
#: Colours by number of ranks, the fewest first.
COLORS = CYCLE[:5]


def tables(words: Messages) -> Iterator[Table]:
    """Yield all tables about the published curves."""
    yield errors(words)
    yield bands(words)
    yield formulas(words)
    yield measured(words)
    yield sources(words)


def _table(name: str, keys: Sequence[str], rows: list[Cells], words: Messages) -> Table:
    """Return a table with columns ``keys`` and the caption ``published.table.NAME``."""
    columns = [
        Column(k, words(f"published.column.{k}"), show="text" if k in TEXTS else "number")
        for k in keys
    ]
    return Table(name, words(f"published.table.{name}"), columns, rows)


def median_and_worst(errors: Sequence[float]) -> str:
    """Return median and worst of errors given as fractions, e.g. ``7.3 % / 11.6 %``; a dash for
    none."""
    return " / ".join(map(numbers.percent, summary(errors))) if errors else numbers.NO_VALUE


def errors(words: Messages) -> Table:
    """Return the table of every curve's fitted constants and errors."""
    rows: list[Cells] = []
    for curve in curves().values():
        link, parts = curve.fit().link, curve.errors_by_part()
        rate = 1 / link.beta_s_per_byte / 1e9
        counts = f"{len(parts.fitted)} / {len(parts.held_out_errors())}"
        rows.append(
            [
                curve.name,
                curve.strategy,
                format_seconds(link.alpha_s),
                f"{rate:.3g} GB/s",
                counts,
                median_and_worst([*parts.fitted.values()]),
                median_and_worst([*parts.sizes.values()]),
                median_and_worst([*parts.ranks.values()]),
                format_ranks(parts.ranks),
            ]
        )
    keys = ("curve", "priced", "alpha", "rate", "counts", "fitted", "sizes", "others", "ranks")
    return _table("errors", keys, rows, words)


def format_ranks(points: Iterable[PublishedTime]) -> str:
    """Return the distinct numbers of ranks as text, e.g. ``1,024, 2,048``."""
    return ", ".join(f"{n:,}" for n in sorted({p.n for p in points})) or numbers.NO_VALUE


def bands(words: Messages) -> Table:
    """Return the table of the median signed error of held-out points, in three ranges of sizes."""
    rows: list[Cells] = []
    for curve in curves().values():
        parts = curve.errors_by_part()
        held = {**parts.sizes, **parts.ranks}
        cells = []
        for low, high in ((0, SMALL), (SMALL, LARGE), (LARGE, float("inf"))):
            here = [e for p, e in held.items() if low <= p.nbytes < high]
            cells.append(format_signed(statistics.median(here)) if here else numbers.NO_VALUE)
        rows.append([curve.name, str(curve.about["algorithm"]), *cells])
    return _table("bands", ("curve", "algorithm", "small", "middle", "large"), rows, words)


def format_signed(share: float) -> str:
    """Return a fraction as a signed percentage, e.g. ``+12 %``."""
    return f"{100 * share:+.0f} %".replace("-", "−")


def formulas(words: Messages) -> Table:
    """Return the table of errors on numbers of ranks that were not fitted, for all sizes and for
    large messages alone, by the formula in use and by another."""
    rows: list[Cells] = []
    for name, other in ALTERNATIVE_FORMULAS:
        curve = curves()[name]
        for strategy in (curve.strategy, other):
            found = curve.errors_by_part(strategy).ranks
            large = [e for p, e in found.items() if p.nbytes >= LARGE]
            rows.append(
                [name, strategy, median_and_worst([*found.values()]), median_and_worst(large)]
            )
    return _table("formulas", ("curve", "priced", "others", "others_large"), rows, words)


def measured(words: Messages) -> Table:
    """Return the table of the hardware and software of each curve."""
    rows: list[Cells] = []
    for curve in curves().values():
        about = curve.about
        rows.append(
            [
                curve.name,
                about["hardware"],
                about["software"],
                format_ranks(curve.points),
                about["source"],
                about["path"],
            ]
        )
    keys = ("curve", "hardware", "software", "ranks", "source", "path")
    return _table("measured", keys, rows, words)


def sources(words: Messages) -> Table:
    """Return the table of sources: who published the curves, and where they were read."""
    rows: list[Cells] = [
        [name, of["text"], of["repository"], of["commit"][:10], str(of["read"]), of["licence"]]
        for name, of in given()["sources"].items()
    ]
    keys = ("source", "text", "repository", "commit", "read", "licence")
    return _table("sources", keys, rows, words)


def figure(words: Messages) -> Figure:
    """Return the figure of predicted lines over published points: seconds against bytes."""
    drawn = [[curves()[name] for name in names] for names in DRAWN]
    keys = [
        LegendEntry("series", "fitted", words("published.fitted"), marker="circle"),
        LegendEntry("series", "held", words("published.held"), marker="circle", hollow=True),
        LegendEntry("series", "line", words("published.line")),
        *(LegendEntry("arm", color, color=color, listed=False) for color in COLORS),
    ]
    return Figure(
        "published",
        words("published.figure"),
        words("published.figure_alt"),
        [panel(group, words) for group in drawn],
        keys,
        columns=2,
    )


def panel(group: Sequence[PublishedCurve], words: Messages) -> Panel:
    """Return the panel of a group of curves: seconds against bytes, fitted and held-out points
    and the predictions, a colour per number of ranks. Numbers of ranks with a single size are
    left out."""
    marks: list[Mark] = []
    drawn: list[PublishedTime] = []
    for curve in group:
        seen = set(curve.fitted_points())
        by_ranks = (
            sorted((p for p in curve.points if p.n == n), key=lambda p: p.nbytes)
            for n in sorted({p.n for p in curve.points})
        )
        of_several_sizes = [points for points in by_ranks if len(points) > 1]
        for color, points in zip(COLORS, of_several_sizes, strict=False):
            marks.append(_predicted(curve, points, SeriesId(color, series="line")))
            for name, fitted in (("fitted", True), ("held", False)):
                kept = [p for p in points if (p in seen) == fitted]
                owner, hints = SeriesId(color, series=name), [f"n = {p.n:,}" for p in kept]
                sizes, seconds = [p.nbytes for p in kept], [p.seconds for p in kept]
                marks.append(LineMark(sizes, seconds, owner, joined=False, hints=hints))
            drawn += points
    title = f"{', '.join(curve.name for curve in group)}: n = {format_ranks(drawn)}"
    x, y = (Axis(words(f"published.axis.{key}"), "log") for key in ("bytes", "seconds"))
    return Panel(marks, x, y, title, height=260)


def _predicted(curve: PublishedCurve, points: Sequence[PublishedTime], owner: SeriesId) -> LineMark:
    """Return the line of the seconds that the fitted model predicts at the sizes of these
    points."""
    link, found = curve.fit().link, [p.point(curve.strategy) for p in points]
    seconds = [link.seconds(q.steps, q.bytes) for q in found]
    return LineMark([p.nbytes for p in points], seconds, owner)
