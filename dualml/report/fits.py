"""The fitted constants of ``cost.json``: lines, tables, and predictions against measurements."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

from dualml.report import numbers, ranks
from dualml.report.cells import Cell, Table, heads, number, percent
from dualml.report.model import Run
from dualml.report.words import Words


def fit_of(run: Run, backend: str, n: int, strategy: str) -> Mapping[str, Any] | None:
    """The strategy's own fit; point to point for one whose messages are made here."""
    from dualml.aggregation import STRATEGIES

    mine = [f for f in _known(run) if f["backend"] == backend and f.get("world_size") in (n, None)]
    own = [f for f in mine if f.get("strategy") == strategy]
    counted = strategy in STRATEGIES and STRATEGIES[strategy].counted
    shared = [f for f in mine if f.get("strategy") is None and counted]
    return next(iter([*own, *shared]), None)


def _known(run: Run) -> list[Mapping[str, Any]]:
    """Fits that have constants."""
    return [f for f in run.cost.get("fits") or () if (f.get("fit") or {}).get("link")]


def fitted(run: Run, backend: str, n: int, strategy: str, nbytes: int) -> float | None:
    """Seconds by the fit; None without one."""
    found = fit_of(run, backend, n, strategy)
    return None if found is None else seconds(found, strategy, n, nbytes)


def seconds(found: Mapping[str, Any], strategy: str, n: int, nbytes: int) -> float | None:
    """α·messages + β·bytes + γ·added on the critical path of the strategy."""
    from dualml.cost import Point
    from dualml.cost.topology import Topology
    from dualml.errors import UserError

    link = found["fit"]["link"]
    try:
        topology = Topology.parse(str(found.get("topology") or "flat"))
        point = Point.of(strategy, n, nbytes, 1.0, topology)
    except UserError:
        return None
    return float(
        link["alpha_s"] * point.steps
        + link["beta_s_per_byte"] * point.bytes
        + (link.get("gamma_s_per_byte") or 0.0) * point.added
    )


def fit_table(run: Run, words: Words) -> Table | None:
    """α and β of every fit with their intervals, and how well it fits."""
    rows = []
    for f in _known(run):
        fit = f["fit"]
        link, ranges = fit["link"], fit.get("intervals") or {}
        beta = link["beta_s_per_byte"]
        rows.append(
            [
                Cell(str(f["backend"])),
                number(str(f.get("world_size") or numbers.NONE)),
                Cell(*name_of(f, words)),
                _constant(link["alpha_s"], ranges.get("alpha_s"), 1e6),
                _constant(beta, ranges.get("beta_s_per_byte"), 1e9),
                number(numbers.quantity(1e-9 / beta) if beta else numbers.NONE),
                number(numbers.quantity(fit.get("points"))),
                *(number(percent(fit.get(key))) for key in ("median_error", "worst_error")),
            ]
        )
    if not rows:
        return None
    head = heads(
        words,
        *("backend", "ranks:count", "strategy", "alpha:microseconds", "beta:ns_per_byte"),
        *("bandwidth:gb_per_second", "points:count", "median_error:percent"),
        "worst_error:percent",
    )
    return Table("fits", words("table.fits"), head, rows)


def name_of(f: Mapping[str, Any], words: Words) -> tuple[str, str]:
    """The strategy of a fit and the kind of its cell."""
    name = f.get("strategy")
    return (str(name), "code") if name else (words("value.point_to_point"), "text")


def _constant(value: float, interval: Sequence[float] | None, scale: float) -> Cell:
    note = ""
    if interval:
        low, high = (numbers.quantity(v * scale) for v in interval)
        note = f"{low} – {high}"
    return Cell(numbers.quantity(value * scale), "number", note=note)


def checks(run: Run) -> list[Mapping[str, Any]]:
    """Predictions for numbers of ranks that were not fitted, with what was measured there."""
    return [
        c
        for c in run.cost.get("checks") or ()
        if numbers.known(c.get("measured_s")) and numbers.known(c.get("predicted_s"))
    ]


def check_table(run: Run, words: Words) -> Table | None:
    """Measured against predicted, by backend, ranks and strategy: the largest size, and all."""
    grouped: dict[tuple[str, int, int, str], list[Mapping[str, Any]]] = {}
    for c in checks(run):
        key = (str(c["backend"]), int(c["world_size"]), int(c.get("from_world_size") or 0))
        grouped.setdefault((*key, str(c["strategy"])), []).append(c)
    rows = []
    for (backend, n, origin, strategy), mine in grouped.items():
        last = max(mine, key=lambda c: float(c["bytes"]))
        ratios = [c["predicted_s"] / c["measured_s"] for c in mine if c["measured_s"]]
        rows.append(
            [
                Cell(backend),
                number(str(n)),
                number(str(origin or numbers.NONE)),
                Cell(strategy, "code"),
                *(number(numbers.quantity(1e3 * last[k])) for k in ("measured_s", "predicted_s")),
                number(numbers.factor(median(ratios)) if ratios else numbers.NONE),
                number(f"{numbers.factor(min(ratios))} – {numbers.factor(max(ratios))}")
                if ratios
                else number(numbers.NONE),
            ]
        )
    if not rows:
        return None
    head = heads(
        words,
        *("backend", "ranks:count", "fitted_at:count", "strategy", "measured:milliseconds"),
        *("predicted:milliseconds", "predicted_ratio:relative", "predicted_range:relative"),
    )
    return Table("checks", words("table.checks"), head, rows)


def slowdown(run: Run, arm: str, backend: str, key: str) -> float | None:
    """What ``cost.json`` says of a slow arm: the factor on the time of an update, ``measured`` or
    ``predicted``; the median over the seeds."""
    found = [
        float(s[key])
        for s in run.cost.get("slowdowns") or ()
        if s.get("arm") == arm and s.get("backend") == backend and numbers.known(s.get(key))
    ]
    return median(found) if found else None


def predicted_slowdown(run: Run, arm: str, backend: str) -> float | None:
    return slowdown(run, arm, backend, "predicted")


def measured_slowdown(run: Run, arm: str, backend: str) -> float | None:
    """The file's, or else the ratio of the ranks' mean times of an update."""
    told = slowdown(run, arm, backend, "measured")
    if told is not None:
        return told
    base = ranks.base_of(run, arm)
    mine = ranks.update_seconds(run, arm, backend)
    theirs = ranks.update_seconds(run, base, backend) if base else None
    return mine / theirs if mine and theirs else None
