"""The α–β cost model: constants fitted to the measurements, and its predictions checked."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from statistics import median
from typing import Any

from dualml.common.words import Messages, numbers
from dualml.common.words.numbers import ms, nbytes
from dualml.experiment.store.run import RunData
from dualml.report import legend
from dualml.report.blocks import Block, Table
from dualml.report.columns import Columns, tabulate
from dualml.report.confidence import MeanInterval
from dualml.report.figure import Axis, Figure, LegendEntry, LineMark, Mark, Panel, SeriesId
from dualml.report.fits import prediction_checks, usable_fits
from dualml.report.notes import Notes
from dualml.report.presentation import build_figure, summarize_predictions
from dualml.report.topics import ReportSection

Check = Mapping[str, Any]


def evidence(run: RunData, words: Messages) -> Iterator[Block]:
    """Yield the fitted constants, and predicted beside measured times as a figure and a table."""
    yield from _constants(run, words)
    if prediction_checks(run):
        yield _figure(run, words)
    yield from _checks_table(run, words)


def _ratios(run: RunData) -> dict[str, float]:
    """Return measurement, as the text ``STRATEGY, BACKEND, n = RANKS, BYTES``, → predicted over
    measured seconds, where neither is 0."""
    return {
        f"{c['strategy']}, {c['backend']}, n = {c['world_size']}, {nbytes(c['bytes'])}": c[
            "predicted_s"
        ]
        / c["measured_s"]
        for c in prediction_checks(run)
        if c["measured_s"] and c["predicted_s"]
    }


def _constants(run: RunData, words: Messages) -> Iterator[Table]:
    """Yield the table of α and β of every fit with their intervals, and the errors of the fit."""

    def constant(f: Check, key: str) -> MeanInterval:
        low, high = (f["fit"].get("intervals") or {}).get(key, (None, None))
        return MeanInterval(f["fit"]["link"][key], low, high, 0)

    def bandwidth(f: Check) -> float | None:
        beta = f["fit"]["link"]["beta_s_per_byte"]
        return 1 / beta if beta else None

    read: Columns[Check] = {
        "backend": lambda f: str(f["backend"]),
        "ranks:count": lambda f: f.get("world_size") or None,
        "strategy": lambda f: str(f.get("strategy") or words("value.point_to_point")),
        "alpha:microseconds": lambda f: constant(f, "alpha_s"),
        "beta:ns_per_byte": lambda f: constant(f, "beta_s_per_byte"),
        "bandwidth:gb_per_second": bandwidth,
        "points:count": lambda f: f["fit"].get("points"),
        "median_error:percent": lambda f: f["fit"].get("median_error"),
        "worst_error:percent": lambda f: f["fit"].get("worst_error"),
    }
    yield from tabulate(words, "fits", usable_fits(run), read)


def _figure(run: RunData, words: Messages) -> Figure:
    """Return a figure of predicted against measured times, a panel per backend; on the diagonal
    they are equal."""
    every = prediction_checks(run)
    values = [1e3 * float(c[key]) for c in every for key in ("measured_s", "predicted_s")]
    low, high = min(v for v in values if v > 0) / 1.5, max(values) * 1.5
    x, y = (Axis(words(f"axis.{key}_ms"), "log", low, high) for key in ("measured", "predicted"))
    names = dict.fromkeys(str(c["strategy"]) for c in every)
    panels = []
    for backend in [b for b in run.backends if any(c["backend"] == b for c in every)]:
        marks: list[Mark] = [
            LineMark([low, high], [f * low, f * high], SeriesId(series=name), marker="none")
            for f, name in ((1.0, "right"), (0.5, "twice"), (2.0, "twice"))
        ]
        for name in names:
            here = [c for c in every if (c["backend"], c["strategy"]) == (backend, name)]
            real, guess = ([1e3 * c[key] for c in here] for key in ("measured_s", "predicted_s"))
            hints = [
                f"n = {c['world_size']}, {nbytes(c['bytes'])};"
                f"{ms(c['measured_s'])} → {ms(c['predicted_s'])} ms"
                for c in here
            ]
            marks.append(LineMark(real, guess, SeriesId(series=name), joined=False, hints=hints))
        panels.append(Panel(marks, x, y, backend))
    lines = [
        LegendEntry("series", name, color="line", stroke=stroke, listed=False)
        for name, stroke in (("right", "line"), ("twice", "fine-dashes"))
    ]
    ratios = _ratios(run)
    worst = max((max(r, 1 / r) for r in ratios.values()), default=None)
    inside = sum(0.5 <= r <= 2 for r in ratios.values())
    texts = {"n": len(ratios), "inside": inside, "worst": worst}
    return build_figure(
        words, "predictions", panels, [*legend.strategies(names), *lines], texts, share_y="row"
    )


def _checks_table(run: RunData, words: Messages) -> Iterator[Table]:
    """Yield the table of measured and predicted times by backend, ranks and strategy: those of the
    largest size, and the ratios of all sizes."""
    grouped: dict[tuple[Any, ...], list[Check]] = {}
    for c in prediction_checks(run):
        at = (str(c["backend"]), c["world_size"], c.get("from_world_size"), str(c["strategy"]))
        grouped.setdefault(at, []).append(c)

    def cells(each: Sequence[Check]) -> list[Any]:
        last = max(each, key=lambda c: float(c["bytes"]))
        ratios = [c["predicted_s"] / c["measured_s"] for c in each if c["measured_s"]]
        middle, *ends = [of(ratios) for of in (median, min, max)] if ratios else [None]
        span = " – ".join(map(numbers.factor, ends)) or None
        return [last["measured_s"], last["predicted_s"], middle, span]

    times = ("measured:milliseconds", "predicted:milliseconds")
    ratios = ("predicted_ratio:relative", "predicted_range:relative")
    read: Columns[tuple[Any, ...]] = {
        ("backend", "ranks:count", "fitted_at:count", "`strategy`"): lambda place: place,
        (*times, *ratios): lambda place: cells(grouped[place]),
    }
    yield from tabulate(words, "checks", grouped, read)


def findings(notes: Notes, run: RunData) -> None:
    """Add how close the predictions are, and latency α and bandwidth 1/β of each backend's
    links."""
    ratios = _ratios(run)
    if ratios:
        notes.add("checks", len(ratios), **summarize_predictions(ratios, str))
    notes.set_anchor("table-fits")
    for f in usable_fits(run):
        alpha, beta = (f["fit"]["link"][key] for key in ("alpha_s", "beta_s_per_byte"))
        if f.get("strategy") is None and beta:
            notes.add(
                "fit",
                backend=f["backend"],
                n=f.get("world_size") or numbers.NO_VALUE,
                alpha=1e6 * alpha,
                rate=1e-9 / beta,
                half=alpha / beta,
                error=f["fit"].get("median_error"),
            )


TOPIC = ReportSection("predictions", 220, evidence, findings, "figure-predictions")
