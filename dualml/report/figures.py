"""The figures of a run: curves of all frameworks overlaid, and the distance between them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from dualml.report import curves, numbers, ranks, style
from dualml.report.model import Comparison, Run
from dualml.report.style import Figure, Look, loss_unit, slug
from dualml.report.sweeps import sweep_figures
from dualml.report.words import Words

if TYPE_CHECKING:
    from matplotlib.axes import Axes

METRICS = ("loss", "test_accuracy")


def figures(run: Run, words: Words) -> Iterator[Figure]:
    """Every figure of the report in its order."""
    look = Look(run)
    for group, arms in run.groups().items():
        if not any(t.curves for t in run.trials if t.arm in arms):
            continue
        alone = all(ranks.size(run, arm) == 1 for arm in arms)
        main = set(arms) >= set(run.main_arms())
        if alone:  # groups with several ranks have figures of their own
            yield from sweep_figures(run, words, look, group, arms)
        if alone and len(arms) <= len(style.PALETTE):
            for axis in curves.AXES if main else ("epochs",):
                yield _overview(run, words, look, group, arms, axis)
        compared = [c for c in run.comparisons or () if c.arm in arms and c.curve.get("step")]
        apart = any(c.verdict == "different" for c in compared)
        if compared and (main or apart):
            chosen = compared if alone else _worst(compared)
            yield from _distances(run, words, look, group, chosen)


def _worst(compared: Sequence[Comparison], most: int = 3) -> list[Comparison]:
    """The arms whose pairs are furthest apart: of many arms with ranks all look alike."""

    def far(arm: str) -> tuple[bool, float]:
        mine = [c for c in compared if c.arm == arm]
        ratios = [p["ratio"] for c in mine for p in c.phases.values() if p.get("ratio")]
        return any(c.verdict == "different" for c in mine), max(ratios, default=0.0)

    arms = sorted({c.arm for c in compared}, key=lambda arm: (*far(arm), arm))[-most:]
    return [c for c in compared if c.arm in arms]


def _overview(
    run: Run, words: Words, look: Look, group: str, arms: Sequence[str], axis: str
) -> Figure:
    """Training loss above test accuracy on one x axis, all arms and frameworks."""
    name = f"{slug(group)}-{axis}"
    with style.canvas(style.WIDTH, 6.2) as made:
        upper, lower = made.subplots(2, 1, sharex=True, height_ratios=[3, 2])
        for axes, metric in ((upper, METRICS[0]), (lower, METRICS[1])):
            values = [v for arm in arms for v in _draw(axes, run, look, arm, metric, axis)]
            if metric == "loss":
                style.log_if_wide(axes, values)
            else:
                axes.set_ylim(min([0.0, *values]) * 100, 102)
            axes.set_ylabel(words(f"axis.{metric}", unit=loss_unit(run)))
        log = _log_updates(lower, run, arms) if axis == "updates" else False
        lower.set_xlabel(words(f"axis.{axis}") + (words("axis.log") if log else ""))
        if axis != "updates":
            lower.set_xlim(left=0)
        look.legend(made, {a: look.colors[a] for a in arms}, run.backends)
        text = style.svg(made, name)
    title, seeds = words(f"figure.curves.{axis}"), len(run.seeds)
    notes = [title]
    if group != "main":
        notes.append(words("figure.group", group=words.either(f"group.{group}", group)))
    notes += [words("figure.smoothed"), words.plural("figure.seeds", seeds, n=seeds)]
    if axis == "seconds":
        notes.append(words("figure.interpolated"))
    if any(not t.ok and t.curves for t in run.trials if t.arm in arms):
        notes.append(words("figure.broken"))
    alt = words("alt.curves", title=title, finals=_finals(run, words, arms))
    return Figure(name, text, words.sentences(notes), alt)


def _draw(axes: Axes, run: Run, look: Look, arm: str, metric: str, axis: str) -> list[float]:
    """One arm's curves on all backends; returns what the y axis must hold."""
    scale = 100.0 if metric.endswith("accuracy") else 1.0
    seen: list[float] = []
    for backend in look.order(run.backends):
        line = curves.line(run.select(arm, backend), metric, axis)
        color = look.colors[arm]
        if line is not None:
            if line.raw is not None:
                x, y = curves.extremes(line.x, line.raw)
                axes.plot(x, y * scale, color=color, linewidth=0.5, alpha=0.16, zorder=1)
            x, mean, low, high = curves.thin(line.x, line.mean, line.low, line.high)
            if len(run.seeds) > 1:
                axes.fill_between(
                    x, low * scale, high * scale, color=color, alpha=0.13, linewidth=0, zorder=1
                )
            axes.plot(x, mean * scale, **look.line(arm, backend), zorder=2)
            seen += [float(v) for v in np.concatenate([low, high]) if np.isfinite(v)]
        for trial in run.select(arm, backend, ok=False):
            curve = None if trial.ok else trial.curves.get(metric)
            if curve is not None:
                x, y = curves.thin(curves.position(trial, curve, axis), curve.value)
                axes.plot(x, y * scale, color=color, linewidth=0.8, alpha=0.8)
                end = np.flatnonzero(np.isfinite(y))[-1:]
                axes.plot(x[end], y[end] * scale, "x", color=color, markersize=7, mew=1.8)
    return seen


def _distances(
    run: Run, words: Words, look: Look, group: str, compared: Sequence[Comparison]
) -> Iterator[Figure]:
    """Per arm a column: the loss of all frameworks, beneath it their distance and its envelope."""
    arms = [a for a in run.groups()[group] if any(c.arm == a for c in compared)]
    pairs = list(dict.fromkeys((c.a, c.b) for c in compared))
    limits = _limits(run, compared)
    for start in range(0, len(arms), 3):
        shown = arms[start : start + 3]
        name = f"{slug(group)}-distance" + (f"-{start // 3 + 1}" if len(arms) > 3 else "")
        with style.canvas(style.WIDTH, 5.6) as made:
            grid = made.subplots(2, len(shown), sharex="col", sharey="row", squeeze=False)
            for column, arm in enumerate(shown):
                upper, lower = grid[0, column], grid[1, column]
                mine = [c for c in compared if c.arm == arm]
                last = max(max(c.curve["step"]) for c in mine)
                _overlay(upper, run, look, arm, float(last))
                lower.set_yscale("log")
                lower.set_ylim(limits.bottom, limits.top)
                for pair in dict.fromkeys((c.a, c.b) for c in mine):
                    found = [c for c in mine if (c.a, c.b) == pair]
                    _distance(lower, found, pairs.index(pair), limits)
                upper.set_title(arm, color=look.colors[arm], fontweight="bold")
                lower.set_xlabel(words("axis.updates"))
            grid[0, 0].set_ylabel(words("axis.loss", unit=loss_unit(run)))
            grid[1, 0].set_ylabel(words("axis.distance"))
            _pair_legend(made, words, look, run.backends, pairs)
            text = style.svg(made, name)
        alt = words(
            "alt.distance", arms=words.join(shown), pairs=words.join([_pair(*p) for p in pairs])
        )
        caption = words("figure.distance")
        if any(ranks.size(run, arm) > 1 for arm in shown):
            caption = words.sentences([words("figure.furthest", n=len(arms)), caption])
        yield Figure(name, text, caption, alt)


_PAIR: Any = (("#222222", "-"), ("#7A3E9D", (0, (4, 2))), ("#1B7F8C", (0, (1, 1.5))))


def _overlay(axes: Axes, run: Run, look: Look, arm: str, last: float) -> None:
    """The unsmoothed loss of the compared updates: coincidence is seen, not computed."""
    for backend in look.order(run.backends):
        for trial in run.select(arm, backend):
            curve = trial.curves.get("loss")
            if curve is not None:
                kept = curve.step <= last
                x, y = curves.thin(curve.step[kept], curve.value[kept])
                axes.plot(x, y, **look.line(arm, backend))


def _distance(axes: Axes, found: Sequence[Comparison], pair: int, limits: Limits) -> None:
    """One pair over its seeds: the largest distance against the smallest limit of equality."""
    color, stroke = _PAIR[pair % len(_PAIR)]
    n = min(len(c.curve["step"]) for c in found)
    step = np.asarray(found[0].curve["step"][:n], dtype=float)
    distance, envelope = (
        np.array([[np.nan if v is None else v for v in c.curve[key][:n]] for c in found])
        for key in ("loss", "envelope")
    )
    limit = limits.margin * np.maximum(envelope.min(axis=0), limits.floor)
    x, y, top = curves.thin(step, distance.max(axis=0), limit, points=200)
    axes.fill_between(x, limits.bottom, top, color=color, alpha=0.06, linewidth=0)
    axes.plot(x, top, color=color, linestyle=stroke, linewidth=0.8, alpha=0.5)
    axes.plot(x, np.maximum(y, limits.bottom), color=color, linestyle=stroke, linewidth=1.3)


@dataclass(frozen=True)
class Limits:
    """What turns an envelope into a limit of equality, and the range of the axis."""

    margin: float
    floor: float
    bottom: float
    top: float


def _limits(run: Run, compared: Sequence[Comparison]) -> Limits:
    settings = run.parity_settings
    margin, floor = float(settings.get("margin") or 1), float(settings.get("floor") or 0)
    seen = [v for c in compared for v in c.curve["loss"] if v]
    bounds = [margin * max(v or 0.0, floor) for c in compared for v in c.curve["envelope"]]
    positive = [v for v in [*seen, *bounds] if v > 0] or [1e-9]
    return Limits(margin, floor, min(positive) / 3, max(positive) * 3)


def _pair_legend(
    made: Any, words: Words, look: Look, backends: Sequence[str], pairs: Sequence[tuple[str, str]]
) -> None:
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    handles: list[Any] = [
        Line2D(
            [], [], color=style.INK, label=b, linestyle=s.style, linewidth=s.width, alpha=s.alpha
        )
        for b, s in look.strokes.items()
        if b in backends
    ]
    for k, pair in enumerate(pairs):
        color, stroke = _PAIR[k % len(_PAIR)]
        handles.append(Line2D([], [], color=color, linestyle=stroke, label=_pair(*pair)))
    handles.append(Patch(color="#222222", alpha=0.12, label=words("figure.envelope")))
    made.legend(handles=handles, loc="outside upper left", ncols=4, handlelength=2.6)


def _pair(a: str, b: str) -> str:
    return f"{a} – {b}"


def _log_updates(axes: Axes, run: Run, arms: Sequence[str]) -> bool:
    """Full-batch arms make few updates, others thousands: then 0, 1, 10, 100, …"""
    most = [max([t.updates or 0 for t in run.select(arm)], default=0) for arm in arms]
    most = [m for m in most if m]
    wide = bool(most) and max(most) > 4 * min(most)
    if wide:
        axes.set_xscale("symlog", linthresh=1, linscale=0.25)
    axes.set_xlim(left=0)
    return wide


def _finals(run: Run, words: Words, arms: Sequence[str]) -> str:
    """Test accuracy at the end per arm and backend, in words."""
    parts = []
    for arm in arms:
        for backend in run.backends:
            mean = numbers.mean([t.test_accuracy for t in run.select(arm, backend)])
            if mean is not None:
                parts.append(f"{arm} {backend} {numbers.percent(mean)}")
    return ", ".join(parts) or numbers.NONE
