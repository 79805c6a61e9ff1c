"""The curves of runs, as figures of the report."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from dualml.report import curves, keys
from dualml.report.draw.palette import CYCLE
from dualml.report.figure import Axis, Figure, Key, Line, Mark, Owner, Panel
from dualml.serve.run import Seen, Shown
from dualml.words import Words

#: In the order in which they can be chosen. Others (of each class, of each rank) are the report's.
METRICS = (
    "loss", "test_accuracy", "train_accuracy", "validation_accuracy", "test_loss", "train_loss",
    "validation_loss", "test_perplexity", "train_perplexity", "divergence", "drift",
)  # fmt: skip
#: Arms that can be told apart in one figure, and panels of one.
ARMS, PANELS = len(CYCLE), 8
#: Points of all curves of a figure together, and at least and at most of one.
POINTS, LEAST, MOST = 9000, 60, 300
#: What marks the end of a trial that is at work, and of one that broke off.
ENDS = {"running": "circle", "failed": "cross", "interrupted": "cross"}


def metrics(runs: Sequence[Seen]) -> list[str]:
    """Those that any trial has recorded; always the loss."""
    there = {name for seen in runs for trial in seen.trials for name in trial.curves}
    return [name for name in METRICS if name in there or name == "loss"]


def choices(runs: Sequence[Seen], words: Words) -> dict[str, tuple[str, Sequence[str]]]:
    """Name → label and arms that are drawn together: of one run a group, or a part of one that is
    large; of several all arms in parts, those first that most of them have."""
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
    """Every trial of these arms: the colour tells the arm, the stroke the backend."""
    trials = [(Owner(t.record.arm, t.record.backend), t)
              for t in seen.trials if t.record.arm in arms]  # fmt: skip
    marks = drawn(trials, metric, axis, len(trials))
    panel = Panel(marks, x_axis(axis, words), y_axis([seen], metric, words), height=300)
    return figure([panel], keys.distinct(list(arms)), [seen], metric, words)


def several(
    runs: Sequence[Seen], arms: Sequence[str], metric: str, axis: str, words: Words
) -> Figure:
    """A panel for each of these arms: the colour tells the run, the stroke the backend."""
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
    """As in the report; a backend alone needs none to be told from others."""
    if len(backends) == 1:
        return [Key("backend", backends[0], stroke="solid")]
    spare = iter(keys.SPARE * len(backends))
    return [Key("backend", b, stroke=keys.FRAMEWORKS.get(b) or next(spare)) for b in backends]


def x_axis(axis: str, words: Words) -> Axis:
    return Axis(words(f"axis.{axis}"), low=0)


def y_axis(runs: Sequence[Seen], metric: str, words: Words) -> Axis:
    if metric.endswith("accuracy"):
        return Axis(words("serve.percent", metric=words(f"serve.metric.{metric}")), low=0, high=102)
    kinds = {seen.record.experiment.get("loss", "cross_entropy") for seen in runs}
    unit = "nat" if metric.endswith("loss") and kinds == {"cross_entropy"} else "1"
    label = words("serve.unit", metric=words(f"serve.metric.{metric}"), unit=unit)
    return Axis(label, "auto")


def drawn(trials: Sequence[tuple[Owner, Shown]], metric: str, axis: str, total: int) -> list[Mark]:
    """The curves of trials in a figure that has so many in all."""
    points = max(LEAST, min(MOST, POINTS // max(1, total)))
    return [mark for owner, trial in trials for mark in curve(trial, owner, metric, axis, points)]


def curve(trial: Shown, owner: Owner, metric: str, axis: str, points: int) -> Iterator[Mark]:
    """With the noise behind it, and a mark where it is at work or broke off."""
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
