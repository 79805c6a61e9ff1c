"""Distance between backends: figures with the loss of both above their distance and its limit."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from dualml.common.words import Messages
from dualml.experiment.store.run import RunData, TrialComparison
from dualml.report import curves, legend, ranks
from dualml.report.figure import Axis, Band, Figure, LegendEntry, LineMark, Mark, Panel, SeriesId
from dualml.report.measures import loss_unit, slug

COLUMNS = 3  # arms in a figure
#: Colour and stroke of the first pair, the second, …
PAIRS = (("black", "line"), ("plum", "fine-dashes"), ("green", "fine-dots"))


def distance_figures(
    run: RunData, words: Messages, group: str, compared: Sequence[TrialComparison]
) -> Iterator[Figure]:
    """Yield figures with a column per arm of the group that occurs in ``compared``, at most
    `COLUMNS` in each: its losses on all backends above the distance of each compared pair and its
    limit."""
    arms = [a for a in run.groups()[group] if any(c.arm == a for c in compared)]
    pairs = list(dict.fromkeys(_pair(c) for c in compared))
    margin, floor = (float(run.parity_settings.get(key) or 0) for key in ("margin", "floor"))
    y = distance_axis(words, [c.curve for c in compared], margin or 1, floor)
    looks = [
        *legend.backends(run),
        *(
            LegendEntry("series", pair, color=PAIRS[k % 3][0], stroke=PAIRS[k % 3][1])
            for k, pair in enumerate(pairs)
        ),
        LegendEntry("series", "envelope", words("figure.envelope"), color="line"),
    ]
    for start in range(0, len(arms), COLUMNS):
        shown = arms[start : start + COLUMNS]
        panels = [_losses(run, words, arm, compared) for arm in shown]
        for arm in shown:
            pairs_of = dict.fromkeys(_pair(c) for c in compared if c.arm == arm)
            curves_of = {
                p: [c.curve for c in compared if c.arm == arm and _pair(c) == p] for p in pairs_of
            }
            panels.append(distance_panel(words, curves_of, y, margin or 1, floor))
        several = any(ranks.world_size(run, arm) > 1 for arm in shown)
        caption = [words("figure.furthest", n=len(arms))] if several else []
        unlisted = [
            LegendEntry("arm", k.name, color=k.color, listed=False) for k in legend.arms(run, shown)
        ]
        yield Figure(
            f"{slug(group)}-distance" + (f"-{start // 3 + 1}" if len(arms) > COLUMNS else ""),
            words.join_sentences([*caption, words("figure.distance")]),
            words("alt.distance", arms=shown, pairs=pairs),
            panels,
            [*unlisted, *looks],
            columns=len(shown),
            share_x="column",
            share_y="row",
        )


def _losses(run: RunData, words: Messages, arm: str, compared: Sequence[TrialComparison]) -> Panel:
    """Return a panel with the unsmoothed losses of an arm on all backends, a line per seed, up to
    its last compared update, so that equality is visible."""
    last = max(max(c.curve["step"]) for c in compared if c.arm == arm)
    marks: list[Mark] = []
    for backend in run.backends:
        for trial in run.select(arm, backend):
            curve = trial.curves.get("loss")
            if curve is not None:
                kept = curve.step <= last
                x, y = curves.thin_points(curve.step[kept], curve.value[kept])
                marks.append(LineMark(x, y, SeriesId(arm, backend)))
    loss = Axis(words("axis.loss", unit=loss_unit(run)))
    return Panel(marks, Axis(words("axis.updates")), loss, arm, height=190, owner=SeriesId(arm))


def distance_axis(
    words: Messages, judged: Sequence[Mapping[str, Any]], margin: float, floor: float
) -> Axis:
    """Return the logarithmic y axis that holds the distances and limits of all ``judged`` curves; a
    limit is ``margin`` times the envelope, which is at least ``floor``."""
    distances = [v for curve in judged for v in curve["loss"] if v]
    bounds = [margin * max(v or 0.0, floor) for curve in judged for v in curve["envelope"]]
    positive = [v for v in [*distances, *bounds] if v > 0] or [1e-9]
    return Axis(words("axis.distance"), "log", low=min(positive) / 3, high=max(positive) * 3)


def distance_panel(
    words: Messages,
    pairs: Mapping[str, Sequence[Mapping[str, Any]]],
    y: Axis,
    margin: float,
    floor: float,
) -> Panel:
    """Return a panel with, at each update, the largest distance and the smallest limit of each pair
    over its seeds, cut to the shortest.

    Args:
        words: the messages.
        pairs: name of a pair → for each seed the lists ``step``, ``loss`` (distance) and
            ``envelope``; None is an unknown value.
        y: the axis of the distances (`distance_axis`).
        margin, floor: a limit is ``margin`` times the envelope, which is at least ``floor``.
    """
    marks: list[Mark] = []
    for pair, seeds in pairs.items():
        n = min(len(curve["step"]) for curve in seeds)
        step = np.asarray(seeds[0]["step"][:n], dtype=float)
        distance, envelope = (
            np.array([[np.nan if v is None else v for v in curve[key][:n]] for curve in seeds])
            for key in ("loss", "envelope")
        )
        limit = margin * np.maximum(envelope.min(axis=0), floor)
        x, distances, top = curves.thin_points(step, distance.max(axis=0), limit, points=200)
        owner = SeriesId(series=pair)
        marks += [
            Band(x, None, top, SeriesId(series="envelope")),
            LineMark(x, top, owner, weight="faint"),
            LineMark(x, np.maximum(distances, y.low or 0.0), owner),
        ]
    return Panel(marks, Axis(words("axis.updates")), y, height=190)


def _pair(c: TrialComparison) -> str:
    """Return the names of the two compared backends, ``A – B``."""
    return f"{c.a} – {c.b}"
