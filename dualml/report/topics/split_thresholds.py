"""When splitting pays off: the calibrated model compared with measured arms, and its thresholds."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from statistics import median

from dualml.common.words import Messages, numbers
from dualml.experiment.store.run import RunData
from dualml.planning.cost.model import Fit
from dualml.report import legend
from dualml.report.blocks import Block, Cell
from dualml.report.cards import CardFooter, make_card, read_formulas
from dualml.report.columns import Columns, Row, percent, table, tabulate
from dualml.report.draw.palette import SERIES
from dualml.report.figure import Axis, Figure, LineMark, Mark, Panel, ReferenceLine, SeriesId
from dualml.report.notes import Notes
from dualml.report.presentation import build_figure
from dualml.report.splits import calibration as model
from dualml.report.splits import times
from dualml.report.splits.arms import Splits
from dualml.report.topics import ReportSection

WIDTHS = [round(2 ** (k / 4)) for k in range(20, 57)]  # 32 … 16384
MAX_ERROR_RATIO = 1.3  # error ratio above which the thresholds are not reliable for this machine
CONSTANTS = (
    "backend",
    "flops:gflops",
    "alpha_message:microseconds",
    "rate_message:gb_per_second",
    "error_message:percent",
    "alpha_reduce:microseconds",
    "rate_reduce:gb_per_second",
    "error_reduce:percent",
)


def evidence(run: RunData, words: Messages) -> Iterator[Block]:
    """Yield a notice if ranks shared cores, the card of the model, the thresholds from which a
    split is faster, the fitted constants, and predictions beside measurements; nothing without a
    calibration."""
    splits = Splits(run)
    known = model.calibrations(splits)
    if not known:
        return
    compared = [p for c in known for p in model.predictions(splits, c)]
    yield from times.crowding_notices(run, [p.arm for p in compared], words)
    used = list(dict.fromkeys(base for c in known for base in c.rates))
    card = read_formulas()["pays"]["model"]
    footer = CardFooter(used, card["source"])
    yield make_card(words, words("pays.name"), card["formulas"], words("pays.does"), footer)
    asked = _questions(splits, known)
    if asked:
        yield _figure(asked, words)
        rows = [
            [
                *(q.calibration.backend, words(f"splits.way.{one}"), words(f"splits.way.{two}")),
                _format_threshold(words, q.width_threshold(one, two), format_width),
                _format_threshold(words, q.bandwidth_threshold(one, two), format_bandwidth),
            ]
            for q in asked
            for one, two in model.PAIRS
            if all(q.seconds(way, q.sizes) is not None for way in (one, two))
        ]
        head = ("backend", "faster", "faster_than", "from_width:", "from_bandwidth:")
        yield from table(words, "thresholds", head, rows, q=asked[0])
    yield from table(words, "constants", CONSTANTS, [_constants(c, words) for c in known])
    predicted: Columns[model.SplitPrediction] = {
        "`arm`": lambda p: p.arm.name,
        "backend": lambda p: p.backend,
        "`model`": lambda p: p.arm.model,
        "split_how": lambda p: p.arm.describe(words),
        "predicted:milliseconds": lambda p: p.predicted,
        "measured:milliseconds": lambda p: p.measured,
        "predicted_measured:relative": lambda p: p.ratio,
    }
    yield from tabulate(words, "pays", compared, predicted)


def _questions(splits: Splits, known: Sequence[model.Calibration]) -> list[model.Question]:
    """Return the threshold settings of the backends with a fitted link."""
    each = (model.make_question(splits, c) for c in known if c.messages or c.reduces)
    return [asked for asked in each if asked is not None]


def _constants(c: model.Calibration, words: Messages) -> Row:
    """Return the row of a backend: F in 10⁹ operations per second, and α, 1 / β and error of
    messages and of all-reduce."""
    rates = [f"{arm} {numbers.quantity(rate / 1e9)}" for arm, rate in c.rates.items()]
    rate = Cell(numbers.quantity(c.rate / 1e9), note=words("list.comma").join(rates))
    links = zip((c.messages, c.reduces), c.sizes, strict=True)
    return [c.backend, rate, *(cell for link in links for cell in _link(*link, words))]


def _link(fitted: Fit | None, sizes: int, words: Messages) -> Row:
    """Return the cells of a fitted link: α with the fitted sizes, 1 / β, the median error with the
    worst; three times None without a fit."""
    if fitted is None:
        return [None] * 3
    beta, (low, high) = fitted.link.beta_s_per_byte, fitted.sizes
    from_sizes = words("pays.sizes", n=sizes, low=low, high=high)
    worst = words("pays.worst", error=percent(fitted.worst_error))
    return [
        Cell(numbers.quantity(1e6 * fitted.link.alpha_s), note=from_sizes),
        1 / beta if beta else None,
        Cell(percent(fitted.median_error), note=worst),
    ]


def _format_threshold(words: Messages, first: int | None, text: Callable[[int], str]) -> str:
    """Return a threshold as text: never for None, always for 0."""
    if first is None:
        return words("pays.never")
    return text(first) if first else words("pays.always")


def format_width(d: int) -> str:
    """Return a layer width as text, e.g. ``d = 1,024``."""
    return f"d = {d:,}"


def format_bandwidth(rate: int) -> str:
    """Return a bandwidth, given in bytes per second, as text with a unit."""
    for power, unit in ((1e9, "GB/s"), (1e6, "MB/s"), (1e3, "kB/s")):
        if rate >= power:
            return f"{numbers.factor(rate / power)} {unit}"
    return f"{numbers.factor(rate)} B/s"


def _figure(questions: Sequence[model.Question], words: Messages) -> Figure:
    """Return a figure of the time relative to the whole model against the width of all layers, a
    panel per backend."""
    x = Axis(words("axis.width"), "log2", ticks=[(2.0**k, str(2**k)) for k in range(5, 15, 2)])
    y = Axis(words("axis.against_whole"), "log2")
    panels = []
    for asked in questions:
        marks: list[Mark] = [ReferenceLine(1, dashed=True)]
        for way in SERIES["split"]:
            ratios = [r for d in WIDTHS if (r := asked.relative_time(way, d)) is not None]
            if len(ratios) == len(WIDTHS):
                marks.append(LineMark(WIDTHS, ratios, SeriesId(series=way)))
        panels.append(Panel(marks, x, y, asked.calibration.backend))
    look = legend.series(words, "splits.way", "split")
    wide = 880 if len(panels) > 1 else 560
    return build_figure(words, "pays", panels, look, {"q": questions[0]}, width=wide, share_y="all")


# --- sentences ------------------------------------------------------------------------------------


def findings(notes: Notes, run: RunData) -> None:
    """Add the widths from which splitting pays off, missing fits, and the errors of the
    predictions."""
    splits = Splits(run)
    known = model.calibrations(splits)
    questions = _questions(splits, known)
    widths = (_format_widths(notes, asked) for asked in questions)
    notes.add_joined("widths", widths, layers=questions[0].layers if questions else 0)
    notes.set_anchor("table-constants")
    for c in known:
        links = ("messages", c.messages), ("reduces", c.reduces)
        for (key, fitted), sizes in zip(links, c.sizes, strict=True):
            if fitted is None:
                notes.add_warning(
                    f"no_{key}", sizes, backend=c.backend, sizes=sizes, needed=model.SIZES
                )
    notes.set_anchor("table-pays")
    ratios = {c.backend: [p.ratio for p in model.predictions(splits, c)] for c in known}
    middles = {backend: median(each) for backend, each in ratios.items() if each}
    notes.add_joined(
        "errors",
        (
            notes.format_part(
                "error",
                backend=b,
                typical=middle,
                n=len(ratios[b]),
                low=min(ratios[b]),
                high=max(ratios[b]),
            )
            for b, middle in middles.items()
        ),
    )
    if any(max(middle, 1 / middle) > MAX_ERROR_RATIO for middle in middles.values()):
        notes.add_warning("far")


def _format_widths(notes: Notes, asked: model.Question) -> str:
    """Return the text with the width from which on each split is faster than the whole model."""
    words = notes.words
    each = [
        f"{words(f'splits.way.{way}')} "
        f"{_format_threshold(words, asked.width_threshold(way, model.UNSPLIT), format_width)}"
        for way in (model.TENSOR_SPLIT, model.LAYER_SPLIT)
        if asked.seconds(way, asked.sizes) is not None
    ]
    values = words("list.comma").join(each)
    return notes.format_part("width", backend=asked.calibration.backend, values=values)


TOPIC = ReportSection("pays", 670, evidence, findings, "table-thresholds", priority=lambda run: 55)
