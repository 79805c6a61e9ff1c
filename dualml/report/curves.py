"""Curves of a trial on a chosen axis: several seeds combined, noise smoothed."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from dualml.experiment.store.run import Array, Curve, RunData, Trial
from dualml.report import figure

AXES = ("epochs", "updates", "seconds")


class Drawable(Protocol):
    """The part of a trial that figures need; finished and running trials provide it."""

    @property
    def curves(self) -> Mapping[str, Curve]:
        """Metric name → recorded curve, e.g. ``test_accuracy``."""
        ...

    @property
    def updates(self) -> float | None:
        """Number of parameter updates, None if unknown."""
        ...

    @property
    def train_s(self) -> float | None:
        """Seconds of training, None if unknown."""
        ...

    @property
    def full_batch(self) -> bool:
        """Whether every update uses the whole training set."""
        ...


@dataclass(frozen=True)
class MeanCurve:
    """One metric of one arm on one backend: the mean over the seeds with its minimum and maximum.

    All arrays have the same length. ``raw`` is the unsmoothed mean, None if nothing was smoothed.
    """

    x: Array
    mean: Array
    low: Array
    high: Array
    raw: Array | None


def update_times(trial: Drawable) -> tuple[Array, Array]:
    """Return numbers of updates and the training seconds at them: the evaluations of the metric
    with most known times, then the trial's end if it is later; only start and end if no evaluation
    has a time."""
    timed = [c for c in trial.curves.values() if np.isfinite(c.seconds).any()]
    if not timed:
        return np.array([0.0, trial.updates or 1.0]), np.array([0.0, trial.train_s or np.nan])
    best = max(timed, key=lambda c: int(np.isfinite(c.seconds).sum()))
    kept = np.isfinite(best.seconds)
    step, seconds = best.step[kept], best.seconds[kept]
    if trial.train_s and trial.updates and trial.updates > step[-1]:
        step, seconds = np.append(step, trial.updates), np.append(seconds, trial.train_s)
    return step, seconds


def axis_positions(trial: Drawable, curve: Curve, axis: str) -> Array:
    """Return the x positions of the curve's points on the axis ``updates``, ``epochs`` or
    ``seconds``; seconds are interpolated between the evaluations if the curve did not record all of
    them."""
    if axis == "updates":
        return curve.step
    if axis == "epochs":
        return curve.epochs
    if np.isfinite(curve.seconds).all():
        return curve.seconds
    return np.interp(curve.step, *update_times(trial))


def moving_mean(values: Array, window: int) -> Array:
    """Return the centred mean over ``window`` (odd) points, over fewer at the ends; NaN is ignored,
    and returned only where the window has nothing else."""
    half = window // 2
    if half < 1:
        return values
    good = np.isfinite(values)
    total = np.concatenate([[0.0], np.cumsum(np.where(good, values, 0.0))])
    count = np.concatenate([[0], np.cumsum(good)])
    at = np.arange(len(values))
    low, high = np.maximum(at - half, 0), np.minimum(at + half + 1, len(values))
    n = count[high] - count[low]
    return np.where(n > 0, (total[high] - total[low]) / np.maximum(n, 1), np.nan)


def mean_curve(trials: Sequence[Drawable], metric: str, axis: str) -> MeanCurve | None:
    """Return mean and range over the trials that have the metric, cut to the shortest curve, on an
    axis of `axis_positions`; None if no trial has it. Only the training loss (``loss``) is
    smoothed, by a moving mean over a thirtieth of its points: from 60 points on, and unless all
    trials train on full batches."""
    have = [t for t in trials if metric in t.curves]
    if not have:
        return None
    n = min(len(t.curves[metric].step) for t in have)
    x = np.mean([axis_positions(t, t.curves[metric], axis)[:n] for t in have], axis=0)
    values = np.array([t.curves[metric].value[:n] for t in have])
    noisy = metric == "loss" and n >= 40 and not all(t.full_batch for t in have)
    width = n // 30 | 1 if noisy else 1  # smoothing window: a thirtieth of the curve
    smooth = np.array([moving_mean(v, width) for v in values])
    raw = values.mean(axis=0) if width > 1 else None
    return MeanCurve(x, smooth.mean(axis=0), smooth.min(axis=0), smooth.max(axis=0), raw)


def thin_points(x: Array, *ys: Array, points: int = 300) -> tuple[Array, ...]:
    """Reduce curves to about ``points`` points, evenly by index; the first and the last point are
    kept, a curve with no more points is returned whole."""
    if len(x) <= points:
        return (x, *ys)
    keep = np.unique(np.linspace(0, len(x) - 1, points).round().astype(int))
    return (x[keep], *(y[keep] for y in ys))


def thin_keeping_extremes(x: Array, y: Array, points: int = 300) -> tuple[Array, Array]:
    """Reduce a curve to about ``points`` points: the minimum and the maximum of each of ``points //
    2`` blocks. Blocks without a finite value are dropped, and the last point is not always kept."""
    if len(x) <= points:
        return x, y
    kept: list[int] = []
    for block in np.array_split(np.arange(len(x)), points // 2):
        if np.isfinite(y[block]).any():
            kept += sorted({int(block[np.nanargmin(y[block])]), int(block[np.nanargmax(y[block])])})
    return x[kept], y[kept]


def value_at_epochs(trial: Trial, metric: str, epochs: float) -> tuple[float, float] | None:
    """Return the last finite value of a metric recorded no later than after ``epochs`` epochs, and
    the number of the update at which it was recorded; None without one."""
    curve = trial.curves.get(metric)
    if curve is None:
        return None
    kept = np.flatnonzero((curve.epochs <= epochs * (1 + 1e-9)) & np.isfinite(curve.value))
    return (float(curve.value[kept[-1]]), float(curve.step[kept[-1]])) if len(kept) else None


def mean_lines(
    run: RunData,
    arms: Sequence[str],
    metric: str,
    axis: str,
    factor: float = 1.0,
    after: float = -np.inf,
) -> list[figure.Mark]:
    """Return the mean curves (`mean_curve`) of arms on all backends that have the metric, by
    backend, then by arm: lines of at most about 300 points, multiplied by ``factor``, without
    points whose position on the axis is at or before ``after``."""
    marks: list[figure.Mark] = []
    for backend, arm in itertools.product(run.backends, arms):
        if curve := mean_curve(run.select(arm, backend), metric, axis):
            kept = curve.x > after
            x, mean = thin_points(curve.x[kept], curve.mean[kept])
            marks.append(figure.LineMark(x, factor * mean, figure.SeriesId(arm, backend)))
    return marks
