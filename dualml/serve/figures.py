"""Draw the curves of runs, as figures of the report."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from dualml.report import curves, keys
from dualml.report.draw.palette import CYCLE
from dualml.report.figure import Axis, Figure, Key, Line, Mark, Owner, Panel
from dualml.serve.run import Seen, Shown
from dualml.words import Words

#: Metrics to choose from, in this order. Per-class and per-rank metrics are in the report only.
METRICS = (
    "loss", "test_accuracy", "train_accuracy", "validation_accuracy", "test_loss", "train_loss",
    "validation_loss", "test_perplexity", "train_perplexity", "divergence", "drift",
)  # fmt: skip
#: Maximum number of arms per figure (one colour each), and of panels per figure.
ARMS, PANELS = len(CYCLE), 8
#: Points of all curves of a figure together, and minimum and maximum per curve.
POINTS, LEAST, MOST = 9000, 60, 300
#: Trial state → marker at the end of its curve.
ENDS = {"running": "circle", "failed": "cross", "interrupted": "cross"}


def metrics(runs: Sequence[Seen]) -> list[str]:
    """List the metrics that any trial has recorded; the loss is always among them."""
    there = {name for seen in runs for trial in seen.trials for name in trial.curves}
    return [name for name in METRICS if name in there or name == "loss"]


def choices(runs: Sequence[Seen], words: Words) -> dict[str, tuple[str, Sequence[str]]]:
    """Return the groups of arms to draw together: name → (label, arms).

    For one run these are its groups, large ones in several parts; for several runs, all arms in
    parts, beginning with the arms that most runs have.
    """
    if len(runs) == 1:
        parts = {}
        for group, arms in runs[0].groups.items():
            label = words.either(f"group.{group}", group)
            for first in range(0, len(arms), ARMS):
                span = f" {first + 1}–{min(first + ARMS, len(arms))}" if len(arms) > ARMS else ""
                parts[f"{group}{span}"] = label + span, arms[first : first + ARMS]
        return parts
    order = dict.fromkeys(arm for seen in runs for arms in seen.groups.values() for arm in arms)
    common = sorted(order, key=lambda arm: -sum(arm in seen.arms for seen in runs))
    cuts = [common[k : k + PANELS] for k in range(0, len(common), PANELS)]
    return {arms[0]: (words.join(arms), arms) for arms in cuts}


def one_run(seen: Seen, arms: Sequence[str], metric: str, axis: str, words: Words) -> Figure:
    """Draw every trial of these arms of one run: colours are arms, line styles are backends."""
    trials = [(Owner(t.record.arm, t.record.backend), t)
              for t in seen.trials if t.record.arm in arms]  # fmt: skip
    marks = drawn(trials, metric, axis, len(trials))
    panel = Panel(marks, x_axis(axis, words), y_axis([seen], metric, words), height=300)
    return figure([panel], keys.distinct(list(arms)), [seen], metric, words)


def several(
    runs: Sequence[Seen], arms: Sequence[str], metric: str, axis: str, words: Words
) -> Figure:
    """Draw one panel per arm for several runs: colours are runs, line styles are backends."""
    by_arm: dict[str, list[tuple[Owner, Shown]]] = {arm: [] for arm in arms}
    for seen in runs:
        for trial in seen.trials:
            owner = Owner("", trial.record.backend, seen.found.id)
            by_arm.get(trial.record.arm, []).append((owner, trial))
    total = sum(map(len, by_arm.values()))
    x, y = x_axis(axis, words), y_axis(runs, metric, words)
    panels = [
        Panel(drawn(trials, metric, axis, total), x, y, arm, 220) for arm, trials in by_arm.items()
    ]
    colours = keys.distinct([seen.found.id for seen in runs], kind="series")
    return figure(panels, colours, runs, metric, words, columns=min(2, len(panels) or 1))


def figure(
    panels: Sequence[Panel],
    colours: Sequence[Key],
    runs: Sequence[Seen],
    metric: str,
    words: Words,
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
        "curves", words.sentences(notes), words("serve.alt", metric=title), panels,
        [*colours, *strokes(list(backends))], columns=columns,
    )  # fmt: skip


def strokes(backends: Sequence[str]) -> list[Key]:
    """Make the legend of line styles, as in the report; a single backend is drawn solid."""
    if len(backends) == 1:
        return [Key("backend", backends[0], stroke="solid")]
    spare = iter(keys.SPARE * len(backends))
    return [Key("backend", b, stroke=keys.FRAMEWORKS.get(b) or next(spare)) for b in backends]


def x_axis(axis: str, words: Words) -> Axis:
    """Make the x-axis for updates, epochs or seconds."""
    return Axis(words(f"axis.{axis}"), low=0)


def y_axis(runs: Sequence[Seen], metric: str, words: Words) -> Axis:
    """Make the y-axis of a metric, with its unit."""
    if metric.endswith("accuracy"):
        return Axis(words("serve.percent", metric=words(f"serve.metric.{metric}")), low=0, high=102)
    kinds = {seen.record.experiment.get("loss", "cross_entropy") for seen in runs}
    unit = "nat" if metric.endswith("loss") and kinds == {"cross_entropy"} else "1"
    label = words("serve.unit", metric=words(f"serve.metric.{metric}"), unit=unit)
    return Axis(label, "auto")


def drawn(trials: Sequence[tuple[Owner, Shown]], metric: str, axis: str, total: int) -> list[Mark]:
    """Make the marks of all trials of a panel, in a figure with ``total`` curves."""
    points = max(LEAST, min(MOST, POINTS // max(1, total)))
    return [mark for owner, trial in trials for mark in curve(trial, owner, metric, axis, points)]


def curve(trial: Shown, owner: Owner, metric: str, axis: str, points: int) -> Iterator[Mark]:
    """Yield the marks of one curve: the raw values, the smoothed line, and a marker at its end."""
    line = curves.line([trial], metric, axis)
    if line is None:
        return
    scale = 100.0 if metric.endswith("accuracy") else 1.0
    if line.raw is not None:
        x, raw = curves.extremes(line.x, line.raw, points)
        yield Line(x, scale * raw, owner, weight="faint")
    x, y = curves.thin(line.x, scale * line.mean, points=points)
    yield Line(x, y, owner)
    end = np.flatnonzero(np.isfinite(y))[-1:]
    if shape := ENDS.get(trial.state):
        yield Line(x[end], y[end], owner, joined=False, marker=shape)
