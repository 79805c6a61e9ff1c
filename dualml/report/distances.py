"""How far two backends are apart: the loss of both, and beneath it their distance and its limit."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from dualml.report import curves, keys, ranks
from dualml.report.figure import Axis, Band, Figure, Key, Line, Mark, Owner, Panel
from dualml.report.measures import loss_unit, slug
from dualml.store.run import Comparison, Run
from dualml.words import Words

COLUMNS = 3  # arms in a figure
#: Of the first pair, the second, …
PAIRS = (("black", "line"), ("plum", "fine-dashes"), ("green", "fine-dots"))


@dataclass(frozen=True)
class Limits:
    """What turns an envelope into a limit of equality, and the range of the axis."""

    margin: float
    floor: float
    bottom: float
    top: float


def distance_figures(
    run: Run, words: Words, group: str, compared: Sequence[Comparison]
) -> Iterator[Figure]:
    """Per arm a column: the loss of all frameworks, beneath it their distance and its envelope."""
    arms = [a for a in run.groups()[group] if any(c.arm == a for c in compared)]
    pairs = list(dict.fromkeys((c.a, c.b) for c in compared))
    limits = _limits(run, compared)
    for start in range(0, len(arms), COLUMNS):
        shown = arms[start : start + COLUMNS]
        panels = [_losses(run, words, arm, compared) for arm in shown]
        panels += [_distances(words, arm, compared, limits) for arm in shown]
        caption = words("figure.distance")
        if any(ranks.size(run, arm) > 1 for arm in shown):
            caption = words.sentences([words("figure.furthest", n=len(arms)), caption])
        yield Figure(
            f"{slug(group)}-distance" + (f"-{start // 3 + 1}" if len(arms) > COLUMNS else ""),
            caption,
            words("alt.distance", arms=words.join(shown),
                  pairs=words.join([_pair(*pair) for pair in pairs])),
            panels,
            [
                *(Key("arm", k.name, color=k.color, listed=False) for k in keys.arms(run, shown)),
                *keys.backends(run),
                *(Key("series", _pair(*pair), color=PAIRS[k % 3][0], stroke=PAIRS[k % 3][1])
                  for k, pair in enumerate(pairs)),
                Key("series", "envelope", words("figure.envelope"), color="line"),
            ],
            columns=len(shown),
            share_x="column",
            share_y="row",
        )  # fmt: skip


def _losses(run: Run, words: Words, arm: str, compared: Sequence[Comparison]) -> Panel:
    """The unsmoothed loss of the compared updates: coincidence is seen, not computed."""
    last = max(max(c.curve["step"]) for c in compared if c.arm == arm)
    marks: list[Mark] = []
    for backend in run.backends:
        for trial in run.select(arm, backend):
            curve = trial.curves.get("loss")
            if curve is not None:
                kept = curve.step <= last
                x, y = curves.thin(curve.step[kept], curve.value[kept])
                marks.append(Line(x, y, Owner(arm, backend)))
    loss = Axis(words("axis.loss", unit=loss_unit(run)))
    return Panel(marks, Axis(words("axis.updates")), loss, arm, height=190, owner=Owner(arm))


def _distances(words: Words, arm: str, compared: Sequence[Comparison], limits: Limits) -> Panel:
    """Each pair over its seeds: the largest distance against the smallest limit of equality."""
    marks: list[Mark] = []
    pairs: dict[tuple[str, str], list[Comparison]] = {}
    for comparison in compared:
        if comparison.arm == arm:
            pairs.setdefault((comparison.a, comparison.b), []).append(comparison)
    for pair, seeds in pairs.items():
        n = min(len(c.curve["step"]) for c in seeds)
        step = np.asarray(seeds[0].curve["step"][:n], dtype=float)
        distance, envelope = (
            np.array([[np.nan if v is None else v for v in c.curve[key][:n]] for c in seeds])
            for key in ("loss", "envelope")
        )
        limit = limits.margin * np.maximum(envelope.min(axis=0), limits.floor)
        x, y, top = curves.thin(step, distance.max(axis=0), limit, points=200)
        owner = Owner(series=_pair(*pair))
        marks += [
            Band(x, None, top, Owner(series="envelope")),
            Line(x, top, owner, weight="faint"),
            Line(x, np.maximum(y, limits.bottom), owner),
        ]
    distance_axis = Axis(words("axis.distance"), "log", low=limits.bottom, high=limits.top)
    return Panel(marks, Axis(words("axis.updates")), distance_axis, height=190)


def _limits(run: Run, compared: Sequence[Comparison]) -> Limits:
    settings = run.parity_settings
    margin, floor = float(settings.get("margin") or 1), float(settings.get("floor") or 0)
    distances = [v for c in compared for v in c.curve["loss"] if v]
    bounds = [margin * max(v or 0.0, floor) for c in compared for v in c.curve["envelope"]]
    positive = [v for v in [*distances, *bounds] if v > 0] or [1e-9]
    return Limits(margin, floor, min(positive) / 3, max(positive) * 3)


def _pair(a: str, b: str) -> str:
    return f"{a} – {b}"
