"""Published all-reduces beside the predictions of the cost model, as tables and a figure."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from operator import itemgetter
from typing import Any, TypeVar

from dualml.common.words import Messages, numbers
from dualml.planning.cost.link import Link
from dualml.planning.cost.published import (
    FitErrors,
    PublishedCurve,
    PublishedTime,
    curves,
    median_and_max,
)
from dualml.planning.cost.published import tables as given
from dualml.planning.cost.units import format_seconds
from dualml.report.blocks import Table
from dualml.report.columns import Columns, make_table
from dualml.report.draw.palette import CYCLE
from dualml.report.figure import Axis, Figure, LegendEntry, LineMark, Mark, Panel, SeriesId

R = TypeVar("R")
#: Published curves that are also predicted by another formula, to compare it with the one in use.
ALTERNATIVE_FORMULAS = (("marenostrum-tree", "tree"), ("h200-nvls-ranks", "ring"))
#: Bounds between the ranges of sizes, in bytes.
SMALL, LARGE = 16 * 2**10, 16 * 2**20
#: Curves of each panel.
DRAWN = ("h200-ll", "h200-nvls"), ("marenostrum-ring",), ("marenostrum-tree",), ("leonardo-ring",)
#: Colours by number of ranks, the fewest first.
COLORS = CYCLE[:5]


def tables(words: Messages) -> Iterator[Table]:
    """Yield all tables about the published curves: errors, errors by size, formulas, hardware,
    sources."""
    yield errors(words)
    yield errors_by_size(words)
    yield formulas(words)
    yield hardware_table(words)
    yield sources(words)


def _table(name: str, records: Iterable[R], read: Columns[R], words: Messages) -> Table:
    """Return a table with a row per record and the caption ``published.table.NAME``."""
    caption = words(f"published.table.{name}")
    return make_table(words, name, records, read, caption, "published.column.{}")


def median_and_worst(errors: Sequence[float]) -> str:
    """Return median and worst of errors given as fractions, e.g. ``7.3 % / 11.6 %``; a dash for
    none."""
    return " / ".join(map(numbers.percent, median_and_max(errors))) if errors else numbers.NO_VALUE


def errors(words: Messages) -> Table:
    """Return the table of every curve's fitted constants and errors."""
    fitted = [(curve, curve.fit().link, curve.errors_by_part()) for curve in curves().values()]
    read: Columns[tuple[PublishedCurve, Link, FitErrors]] = {
        ("curve", "priced"): lambda row: (row[0].name, row[0].strategy),
        "alpha:": lambda row: format_seconds(row[1].alpha_s),
        "rate:": lambda row: f"{1 / row[1].beta_s_per_byte / 1e9:.3g} GB/s",
        "counts:": lambda row: f"{len(row[2].fitted)} / {len(row[2].held_out_errors())}",
        "fitted:": lambda row: median_and_worst([*row[2].fitted.values()]),
        "sizes:": lambda row: median_and_worst([*row[2].sizes.values()]),
        "others:": lambda row: median_and_worst([*row[2].ranks.values()]),
        "ranks": lambda row: format_ranks(row[2].ranks),
    }
    return _table("errors", fitted, read, words)


def format_ranks(points: Iterable[PublishedTime]) -> str:
    """Return the distinct numbers of ranks as text, e.g. ``1,024, 2,048``."""
    return ", ".join(f"{n:,}" for n in sorted({p.n for p in points})) or numbers.NO_VALUE


def errors_by_size(words: Messages) -> Table:
    """Return the table of the median signed error of held-out points, in three ranges of sizes."""

    def cells(curve: PublishedCurve) -> Iterator[str]:
        parts = curve.errors_by_part()
        held = {**parts.sizes, **parts.ranks}
        for low, high in ((0, SMALL), (SMALL, LARGE), (LARGE, float("inf"))):
            here = [e for p, e in held.items() if low <= p.nbytes < high]
            yield format_signed(statistics.median(here)) if here else numbers.NO_VALUE

    read: Columns[PublishedCurve] = {
        ("curve", "algorithm"): lambda curve: (curve.name, str(curve.about["algorithm"])),
        ("small:", "middle:", "large:"): cells,
    }
    return _table("bands", curves().values(), read, words)


def format_signed(share: float) -> str:
    """Return a fraction as a signed percentage, e.g. ``+12 %``."""
    return f"{100 * share:+.0f} %".replace("-", "−")


def formulas(words: Messages) -> Table:
    """Return the table of errors on numbers of ranks that were not fitted, for all sizes and for
    large messages alone, by the formula in use and by another."""

    def errors(row: tuple[PublishedCurve, str]) -> tuple[str, str]:
        found = row[0].errors_by_part(row[1]).ranks
        large = [e for p, e in found.items() if p.nbytes >= LARGE]
        return median_and_worst([*found.values()]), median_and_worst(large)

    pairs = [(curves()[name], other) for name, other in ALTERNATIVE_FORMULAS]
    rows = [(curve, strategy) for curve, other in pairs for strategy in (curve.strategy, other)]
    read: Columns[tuple[PublishedCurve, str]] = {
        ("curve", "priced"): lambda row: (row[0].name, row[1]),
        ("others:", "others_large:"): errors,
    }
    return _table("formulas", rows, read, words)


def hardware_table(words: Messages) -> Table:
    """Return the table of the hardware and software of each curve."""
    read: Columns[PublishedCurve] = {
        "curve": lambda curve: curve.name,
        ("hardware", "software"): lambda curve: (curve.about["hardware"], curve.about["software"]),
        "ranks": lambda curve: format_ranks(curve.points),
        ("source", "path"): lambda curve: (curve.about["source"], curve.about["path"]),
    }
    return _table("measured", curves().values(), read, words)


def sources(words: Messages) -> Table:
    """Return the table of sources: who published the curves, and where they were read."""
    read: Columns[tuple[str, Mapping[str, Any]]] = {
        "source": itemgetter(0),
        ("text", "repository"): lambda row: (row[1]["text"], row[1]["repository"]),
        ("commit", "read"): lambda row: (row[1]["commit"][:10], str(row[1]["read"])),
        "licence": lambda row: row[1]["licence"],
    }
    return _table("sources", given()["sources"].items(), read, words)


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
