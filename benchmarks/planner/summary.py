"""Statistics of predictions: errors by group, sweeps, out-of-memories, chosen layouts.

Fitted and held-out rows are summarised apart; nothing here mixes them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

#: Values that are rounded in the JSON file.
DIGITS = 4


@dataclass(frozen=True)
class Judged:
    """A row beside its price, as plain values.

    Attributes:
        name, source, family, device, model, layout: what was run.
        measured, predicted: seconds of an update; 0: not published, no price.
        memory, predicted_memory: bytes of the fullest device; 0: not published, no price.
        needed: bytes of which the planner says whether they fit.
        limit: bytes of the device.
        oom: whether the run was out of memory.
        work: tokens of an update, by which seconds of a sweep are divided.
        sweep: name of its sweep.
        fitted: whether constants may be fitted to it.
        reason: why it has no price.
    """

    name: str
    source: str
    family: str
    device: str
    model: str
    layout: str
    measured: float
    predicted: float
    memory: float
    predicted_memory: float
    needed: float
    limit: float
    oom: bool
    work: float
    sweep: str
    fitted: bool
    reason: str = ""

    @property
    def error(self) -> float | None:
        """Relative error of the time; None without one of both."""
        return relative_error(self.predicted, self.measured)

    @property
    def memory_error(self) -> float | None:
        """Relative error of the memory; None without one of both."""
        return relative_error(self.predicted_memory, self.memory)


def relative_error(predicted: float, measured: float) -> float | None:
    """Return predicted / measured − 1; None if one of them is 0."""
    return predicted / measured - 1 if predicted and measured else None


def error_statistics(errors: Iterable[float | None]) -> dict[str, float] | None:
    """Return number, median, 90th percentile and largest of the absolute errors, the median with
    its sign as bias, and the shares within 5 and 10 %; None without errors."""
    found = [error for error in errors if error is not None]
    if not found:
        return None
    sizes = np.abs(found)
    return {
        "rows": len(found),
        "median": _rounded(np.median(sizes)),
        "p90": _rounded(np.quantile(sizes, 0.9)),
        "worst": _rounded(found[int(sizes.argmax())]),
        "bias": _rounded(np.median(found)),
        "within_5": _rounded(np.mean(sizes <= 0.05)),
        "within_10": _rounded(np.mean(sizes <= 0.10)),
    }


def rank_correlation(first: Sequence[float], second: Sequence[float]) -> float:
    """Return Spearman's rank correlation of two sequences of equal length, of at least two values;
    equal values share their mean rank. NaN if all values of one of them are equal."""
    ranks = [_mean_ranks(values) for values in (first, second)]
    if any(np.ptp(values) == 0 for values in ranks):
        return math.nan
    return float(np.corrcoef(*ranks)[0, 1])


def summarise_half(rows: Sequence[Judged]) -> dict[str, Any]:
    """Return the summary of the rows of one half: time, memory and out-of-memory in all and by
    family, device and source, worst median first; sweeps; rows without a price by reason."""
    return {
        "all": _summarise(rows),
        "sources": _median_of_sources(rows),
        "by_family": _group_by(rows, lambda row: row.family),
        "by_device": _group_by(rows, lambda row: row.device),
        "by_source": _group_by(rows, lambda row: row.source),
        "sweeps": _sweeps(rows),
        "unpriced": _count(row.reason for row in rows if row.reason),
    }


def summarise(rows: Sequence[Judged]) -> dict[str, Any]:
    """Return the summaries of the held-out and of the fitted rows."""
    return {
        "held_out": summarise_half([row for row in rows if not row.fitted]),
        "fitted": summarise_half([row for row in rows if row.fitted]),
    }


def _summarise(rows: Sequence[Judged]) -> dict[str, Any]:
    """Return statistics of time and memory, and counts of out-of-memories."""
    priced = [row for row in rows if not row.reason and row.predicted_memory]
    ran = [row for row in priced if not row.oom and row.measured]
    return {
        "rows": len(rows),
        "unpriced": sum(bool(row.reason) for row in rows),
        "time": error_statistics(row.error for row in rows),
        "memory": error_statistics(row.memory_error for row in rows),
        "out_of_memory": sum(row.oom for row in priced),
        "called_fitting": sum(row.oom and row.needed <= row.limit for row in priced),
        "ran": len(ran),
        "called_out_of_memory": sum(row.needed > row.limit for row in ran),
    }


def _group_by(rows: Sequence[Judged], key: Callable[[Judged], str]) -> dict[str, Any]:
    """Return group → summary, those with the largest median error of the time first."""
    groups: dict[str, list[Judged]] = {}
    for row in rows:
        groups.setdefault(key(row), []).append(row)
    summaries = {name: _summarise(group) for name, group in groups.items()}
    worst = sorted(summaries, key=lambda name: -(summaries[name]["time"] or {}).get("median", -1))
    return {name: summaries[name] for name in worst}


def _median_of_sources(rows: Sequence[Judged]) -> dict[str, float] | None:
    """Return the median over sources of each source's median errors, so that a long table counts
    no more than a short one."""
    by_source = _group_by(rows, lambda row: row.source).values()
    found = {}
    for kind in ("time", "memory"):
        medians = [group[kind]["median"] for group in by_source if group[kind]]
        if medians:
            found[kind] = _rounded(np.median(medians))
    return found or None


def _sweeps(rows: Sequence[Judged]) -> dict[str, Any]:
    """Return sweep → source, number of layouts, Spearman's correlation of predicted and measured
    seconds per token, and whether the layout predicted fastest is measured among the fastest 3."""
    groups: dict[tuple[str, str], list[Judged]] = {}
    for row in rows:
        if row.sweep and row.error is not None:
            groups.setdefault((row.source, row.sweep), []).append(row)
    found = {}
    for (source, sweep), group in groups.items():
        if len(group) < 2:
            continue
        measured = [row.measured / row.work for row in group]
        predicted = [row.predicted / row.work for row in group]
        first = int(np.argmin(predicted))
        found[f"{source}: {sweep}"] = {
            "layouts": len(group),
            "spearman": _rounded(rank_correlation(predicted, measured)),
            "loss_of_first": _rounded(measured[first] / min(measured) - 1),
        }
    return dict(sorted(found.items(), key=lambda item: item[1]["spearman"]))


def _mean_ranks(values: Sequence[float]) -> Any:
    """Return the rank of each value, from 0; equal values have the mean of theirs."""
    given = np.asarray(values, float)
    below = (given[None, :] < given[:, None]).sum(axis=1)
    equal = (given[None, :] == given[:, None]).sum(axis=1)
    return below + (equal - 1) / 2


def _count(values: Iterable[str]) -> Mapping[str, int]:
    """Return value → number of occurrences, most frequent first."""
    counts: dict[str, int] = {}
    for value in values:
        counts[value] = counts.get(value, 0) + 1
    return dict(sorted(counts.items(), key=lambda item: -item[1]))


def _rounded(value: Any) -> float:
    """Return a number with `DIGITS` digits after the point."""
    return round(float(value), DIGITS)
