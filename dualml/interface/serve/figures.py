"""Draw the curves of runs, as figures of the report."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from dualml.common.words import Messages
from dualml.interface.serve.run import RunView, TrialView
from dualml.report import curves, legend
from dualml.report.draw.palette import CYCLE
from dualml.report.figure import Axis, Figure, LegendEntry, LineMark, Mark, Panel, SeriesId

#: Metrics to choose from, in this order. Per-class and per-rank metrics are in the report only.
METRICS = (
    "loss",
    "test_accuracy",
    "train_accuracy",
    "validation_accuracy",
    "test_loss",
    "train_loss",
    "validation_loss",
    "test_perplexity",
    "train_perplexity",
    "divergence",
    "drift",
)
#: Maximum number of arms per figure (one colour each), and of panels per figure.
ARMS, PANELS = len(CYCLE), 8
#: Points of all curves of a figure together, and minimum and maximum per curve.
MAX_FIGURE_POINTS, MIN_CURVE_POINTS, MAX_CURVE_POINTS = 9000, 60, 300
#: Trial state → marker at the end of its curve.
ENDS = {"running": "circle", "failed": "cross", "interrupted": "cross"}


def recorded_metrics(runs: Sequence[RunView]) -> list[str]:
    """List those of `METRICS`, in their order, that any trial has recorded; the loss is always
    among them."""
    there = {name for seen in runs for trial in seen.trials for name in trial.curves}
    return [name for name in METRICS if name in there or name == "loss"]


def arm_groups(runs: Sequence[RunView], words: Messages) -> dict[str, tuple[str, Sequence[str]]]:
    """Return the groups of arms to draw together: name → (label, arms).

    For one run these are its groups, large ones in several parts; for several runs, all arms in
    parts, beginning with the arms that most runs have.
    """
    if len(runs) == 1:
        parts = {}
        for group, arms in runs[0].groups.items():
            label = words.get(f"group.{group}", group)
            for first in range(0, len(arms), ARMS):
                span = f" {first + 1}–{min(first + ARMS, len(arms))}" if len(arms) > ARMS else ""
                parts[f"{group}{span}"] = label + span, arms[first : first + ARMS]
        return parts
    order = dict.fromkeys(arm for seen in runs for arms in seen.groups.values() for arm in arms)
    common = sorted(order, key=lambda arm: -sum(arm in seen.arms for seen in runs))
    cuts = [common[k : k + PANELS] for k in range(0, len(common), PANELS)]
    return {arms[0]: (words.join(arms), arms) for arms in cuts}


def has_curves(runs: Sequence[RunView], arms: Sequence[str], metric: str) -> bool:
    """Return whether a trial of one of these arms has recorded a metric."""
    return any(
        metric in trial.curves for seen in runs for trial in seen.trials if trial.record.arm in arms
    )


def one_run_figure(
    seen: RunView, arms: Sequence[str], metric: str, axis: str, words: Messages
) -> Figure:
    """Draw every trial of these arms of one run: colours are arms, line styles are backends."""
    trials = [
        (SeriesId(t.record.arm, t.record.backend), t) for t in seen.trials if t.record.arm in arms
    ]
    marks = trial_marks(trials, metric, axis, len(trials))
    panel = Panel(marks, x_axis(axis, words), y_axis([seen], metric, words), height=300)
    return make_figure([panel], legend.distinct_colors(list(arms)), [seen], metric, words)


def runs_figure(
    runs: Sequence[RunView], arms: Sequence[str], metric: str, axis: str, words: Messages
) -> Figure:
    """Draw one panel per arm for several runs: colours are runs, line styles are backends."""
    by_arm: dict[str, list[tuple[SeriesId, TrialView]]] = {arm: [] for arm in arms}
    for seen in runs:
        for trial in seen.trials:
            owner = SeriesId("", trial.record.backend, seen.summary.id)
            by_arm.get(trial.record.arm, []).append((owner, trial))
    total = sum(map(len, by_arm.values()))
    x, y = x_axis(axis, words), y_axis(runs, metric, words)
    panels = [
        Panel(trial_marks(trials, metric, axis, total), x, y, arm, 220)
        for arm, trials in by_arm.items()
    ]
    colours = legend.distinct_colors([seen.summary.id for seen in runs], kind="series")
    return make_figure(panels, colours, runs, metric, words, columns=min(2, len(panels) or 1))


def make_figure(
    panels: Sequence[Panel],
    colours: Sequence[LegendEntry],
    runs: Sequence[RunView],
    metric: str,
    words: Messages,
    columns: int = 1,
) -> Figure:
    """Assemble a figure from panels, with its notes, title and legend."""
    notes = [words("serve.strokes")]
    if metric == "loss":
        notes.append(words("figure.smoothed"))
    notes.append(words("serve.ends"))
    title = words(f"serve.metric.{metric}")
    backends = dict.fromkeys(t.record.backend for seen in runs for t in seen.trials)
    return Figure(
        "curves",
        words.join_sentences(notes),
        words("serve.alt", metric=title),
        panels,
        [*colours, *backend_legend(list(backends))],
        columns=columns,
    )


def backend_legend(backends: Sequence[str]) -> list[LegendEntry]:
    """Make the legend of line styles, as in the report; a single backend is drawn solid."""
    if len(backends) == 1:
        return [LegendEntry("backend", backends[0], stroke="solid")]
    spare = iter(legend.SPARE * len(backends))
    return [
        LegendEntry("backend", b, stroke=legend.FRAMEWORKS.get(b) or next(spare)) for b in backends
    ]


def x_axis(axis: str, words: Messages) -> Axis:
    """Make the x-axis for updates, epochs or seconds, from 0."""
    return Axis(words(f"axis.{axis}"), low=0)


def y_axis(runs: Sequence[RunView], metric: str, words: Messages) -> Axis:
    """Make the y-axis of a metric, with its unit: 0 to 102 percent for accuracies."""
    if metric.endswith("accuracy"):
        return Axis(words("serve.percent", metric=words(f"serve.metric.{metric}")), low=0, high=102)
    kinds = {seen.record.experiment.get("loss", "cross_entropy") for seen in runs}
    unit = "nat" if metric.endswith("loss") and kinds == {"cross_entropy"} else "1"
    label = words("serve.unit", metric=words(f"serve.metric.{metric}"), unit=unit)
    return Axis(label, "auto")


def trial_marks(
    trials: Sequence[tuple[SeriesId, TrialView]], metric: str, axis: str, total: int
) -> list[Mark]:
    """Make the marks (lines and end markers) of a metric for all trials of a panel; the ``total``
    curves of its figure share a limited number of points."""
    points = max(MIN_CURVE_POINTS, min(MAX_CURVE_POINTS, MAX_FIGURE_POINTS // max(1, total)))
    return [
        mark for owner, trial in trials for mark in curve_marks(trial, owner, metric, axis, points)
    ]


def curve_marks(
    trial: TrialView, owner: SeriesId, metric: str, axis: str, points: int
) -> Iterator[Mark]:
    """Yield the marks of one curve: the raw values of a noisy loss, the line, and a marker at its
    end if the trial runs, failed or was interrupted. Nothing for a metric that was not recorded."""
    line = curves.mean_curve([trial], metric, axis)
    if line is None:
        return
    scale = 100.0 if metric.endswith("accuracy") else 1.0
    if line.raw is not None:
        x, raw = curves.thin_keeping_extremes(line.x, line.raw, points)
        yield LineMark(x, scale * raw, owner, weight="faint")
    x, y = curves.thin_points(line.x, scale * line.mean, points=points)
    yield LineMark(x, y, owner)
    end = np.flatnonzero(np.isfinite(y))[-1:]
    if shape := ENDS.get(trial.state):
        yield LineMark(x[end], y[end], owner, joined=False, marker=shape)
