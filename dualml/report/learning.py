"""Training curves: loss and accuracy of a group's arms on all backends, overlaid."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from dualml.common.words import Messages, numbers
from dualml.experiment.store.run import RunData
from dualml.report import curves, legend
from dualml.report.figure import Axis, Figure, LineMark, Mark, Panel, SeriesId
from dualml.report.measures import loss_unit, slug
from dualml.report.results import arm_results, format_results

MAX_ARMS_PER_FIGURE = 7  # arms that can be told apart in one figure


def learning_figure(
    run: RunData, words: Messages, group: str, arms: Sequence[str], axis: str
) -> Figure:
    """Return a figure of the arms' training loss above their test accuracy on all backends, against
    ``axis``: ``epochs``, ``updates`` or ``seconds``. ``group`` is the name of their group."""
    logarithmic = axis == "updates" and _needs_log_axis(run, arms)
    label = words(f"axis.{axis}") + (words("axis.log") if logarithmic else "")
    x = Axis(label, "symlog" if logarithmic else "linear", low=0)
    upper = [mark for arm in arms for mark in _marks(run, arm, "loss", axis)]
    lower = [mark for arm in arms for mark in _marks(run, arm, "test_accuracy", axis)]
    loss = Axis(words("axis.loss", unit=loss_unit(run)), "auto")
    accuracy = Axis(words("axis.test_accuracy"), low=0, high=102)
    title, seeds = words(f"figure.curves.{axis}"), len(run.seeds)
    notes = [title]
    if group != "main":
        notes.append(words("figure.group", group=words.get(f"group.{group}", group)))
    notes += [words("figure.smoothed"), words.plural("figure.seeds", seeds, n=seeds)]
    if axis == "seconds":
        notes.append(words("figure.interpolated"))
    if any(not t.ok and t.curves for t in run.trials if t.arm in arms):
        notes.append(words("figure.broken"))
    finals = format_results(
        arm_results(run, arms), lambda r: numbers.format_by_name("percent", r.accuracy)
    )
    return Figure(
        f"{slug(group)}-{axis}",
        words.join_sentences(notes),
        words("alt.curves", title=title, finals=finals),
        [Panel(upper, x, loss, height=270), Panel(lower, x, accuracy, height=170)],
        [*legend.arms(run, arms), *legend.backends(run)],
        share_x="column",
    )


def _marks(run: RunData, arm: str, metric: str, axis: str) -> Iterator[Mark]:
    """Yield the curves of one arm on all backends, accuracies in percent: mean and range over the
    seeds of its successful trials, with the unsmoothed mean behind it where it was smoothed, then
    the curve of each trial that broke off, with a cross at its end."""
    scale = 100.0 if metric.endswith("accuracy") else 1.0
    for backend in run.backends:
        owner = SeriesId(arm, backend)
        line = curves.mean_curve(run.select(arm, backend), metric, axis)
        if line is not None:
            if line.raw is not None:
                x, raw = curves.thin_keeping_extremes(line.x, line.raw)
                yield LineMark(x, scale * raw, owner, weight="faint")
            x, *values = curves.thin_points(line.x, line.mean, line.low, line.high)
            mean, low, high = (scale * v for v in values)
            band = (low, high) if len(run.seeds) > 1 else ()
            yield LineMark(x, mean, owner, *band)
        for trial in run.select(arm, backend, ok=False):
            curve = None if trial.ok else trial.curves.get(metric)
            if curve is not None:
                x, y = curves.thin_points(
                    curves.axis_positions(trial, curve, axis), scale * curve.value
                )
                end = np.flatnonzero(np.isfinite(y))[-1:]
                yield LineMark(x, y, owner, weight="thin")
                yield LineMark(x[end], y[end], owner, joined=False, marker="cross")


def _needs_log_axis(run: RunData, arms: Sequence[str]) -> bool:
    """Return whether the arms' numbers of updates differ so much (more than fourfold) that the axis
    has to be logarithmic: full-batch arms make few updates, others thousands."""
    most = [max([t.updates or 0 for t in run.select(arm)], default=0) for arm in arms]
    return max(most) > 4 * min([m for m in most if m], default=0) > 0
