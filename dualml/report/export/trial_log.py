"""A trial as experiment trackers log it: a name, settings, curves, results, verdicts."""

from __future__ import annotations

import datetime
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from dualml.common.words import Messages
from dualml.experiment.store import table
from dualml.experiment.store.manifest import RESULTS, TrialRecord
from dualml.experiment.store.records import Array, Curve, read_records
from dualml.experiment.store.run import RunData, Serial, Trial, TrialComparison
from dualml.experiment.verdict import worst_verdict
from dualml.report.columns import verdict

Scalar = str | int | float | bool


def trial_name(trial: Trial | TrialRecord) -> str:
    """Return the name of a trial, ``ARM/BACKEND/seedN``."""
    return f"{trial.arm}/{trial.backend}/seed{trial.seed}"


def trial_settings(run: RunData, trial: Trial) -> dict[str, Scalar]:
    """Return the settings of a trial: dotted key of the experiment file → value, without keys whose
    value is None; arm, backend, seed and the names of model, loss and data come first."""
    first = {"arm": trial.arm, "backend": trial.backend, "seed": trial.seed}
    shared = {key: run.experiment.get(key) for key in ("model", "loss")}
    data = {"data": (run.meta.get("data") or {}).get("name")}
    return dict(_flat({**first, **shared, **data, **run.arms[trial.arm]}))


def _flat(nested: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Scalar]]:
    """Yield dotted key and value of every entry of a nested mapping; None is left out, other
    non-scalars become texts."""
    for key, value in nested.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{key}.")
        elif value is not None:
            yield f"{prefix}{key}", value if isinstance(value, Scalar) else str(value)


def trial_results(trial: Trial) -> dict[str, float]:
    """Return those of a trial's final metrics, its wall-clock seconds (``wall_s``) and its peak
    memory in MiB (``peak_memory_mb``) that are known."""
    named = {key: getattr(trial, key) for key in (*RESULTS, "wall_s", "peak_memory_mb")}
    return {key: float(value) for key, value in named.items() if value is not None}


def rank_curves(folder: Path, ranks: int) -> dict[str, Curve]:
    """Return metric → curve for all ranks; of ranks other than 0 as ``METRIC/rankR``."""
    curves = read_records(folder)
    for rank in range(1, ranks):
        own = read_records(folder, rank)
        curves |= {f"{metric}/rank{rank}": curve for metric, curve in own.items()}
    return curves


def record_seconds(curve: Curve, curves: Mapping[str, Curve]) -> Array:
    """Return the training seconds at each record, shape (records,): its own or, if it has none,
    those of the last record of any metric in ``curves`` at an earlier update that has some; 0
    before the first."""
    known = [(c.step, c.seconds, np.isfinite(c.seconds)) for c in curves.values()]
    steps = np.concatenate([step[there] for step, _, there in known])
    order = np.argsort(steps, kind="stable")
    seconds = np.concatenate([seconds[there] for _, seconds, there in known])[order]
    before = np.searchsorted(steps[order], curve.step, side="left")
    last = np.concatenate([[0.0], np.maximum.accumulate(seconds)])[before]
    return np.where(np.isfinite(curve.seconds), curve.seconds, last)


def points(
    curve: Curve, curves: Mapping[str, Curve], first: int = 0
) -> Iterator[tuple[int, float, float]]:
    """Yield update, value and training seconds (`record_seconds`, which uses all ``curves`` of the
    trial) of each record of ``curve`` from index ``first`` on."""
    columns = (curve.step.astype(int), curve.value, record_seconds(curve, curves))
    yield from zip(*(column[first:].tolist() for column in columns), strict=True)


def start_timestamp(meta: Mapping[str, Any]) -> float:
    """Return the creation time of the run in seconds since 1970, 0 if unknown."""
    try:
        return datetime.datetime.fromisoformat(str(meta.get("created"))).timestamp()
    except ValueError:
        return 0.0


def trial_comparisons(run: RunData, trial: Trial) -> list[TrialComparison]:
    """Return the comparisons with a verdict that are of this trial: with another backend, or with
    its baseline; not those in which it is the baseline of others."""
    return [
        c
        for c in table.decided_comparisons(run)
        if (c.arm, c.seed) == (trial.arm, trial.seed) and trial.backend in (c.a, c.b)
    ]


def trial_verdict(run: RunData, trial: Trial) -> str | None:
    """Return the trial's worst verdict, as named in ``parity.json``; None without one."""
    return worst_verdict(c.verdict for c in trial_comparisons(run, trial)) or None


def verdict_lines(run: RunData, trial: Trial, words: Messages) -> list[str]:
    """Return a line per comparison: who was compared, the verdict, and why."""
    lines = []
    for c in trial_comparisons(run, trial):
        pair = (c.arm, c.against) if isinstance(c, Serial) else (c.a, c.b)
        cell = verdict(c, words)
        lines.append(f"{pair[0]} – {pair[1]}: {cell.text} ({cell.note})")
    return lines
