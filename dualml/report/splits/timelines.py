"""One typical update of pipelines and their like: ranks as lines, backends on one axis of time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from dualml.report import pipelines, ranks, style
from dualml.report.model import Run
from dualml.report.pipelines import Bar, Row
from dualml.report.splits import arms, events, spent
from dualml.report.style import Figure, slug
from dualml.report.words import Words

MOST = 6


def timeline_arms(run: Run) -> list[str]:
    """Of the model with the most schedules one arm for each, then what else looks different."""
    drawn = [a for a in arms.split_arms(run) if any(t.timelines for t in run.select(a))]
    drawn = arms.healthy(run, drawn) or drawn
    piped = [a for a in drawn if arms.by_layer(run, a)]
    models: dict[str, dict[str, str]] = {}
    for arm in piped:
        orders = models.setdefault(arms.model(run, arm), {})
        name = arms.schedule(run, arm)
        best = orders.get(name)
        if best is None or _far(run, arm) < _far(run, best):
            orders[name] = arm
    chosen = list(max(models.values(), key=len).values()) if models else []
    seen = {_look(run, arm) for arm in chosen}
    for arm in drawn:
        if _look(run, arm) not in seen:
            seen.add(_look(run, arm))
            chosen.append(arm)
    return chosen[:MOST]


def _far(run: Run, arm: str) -> int:
    return abs(arms.micro_batches(run, arm) - 4)


def _look(run: Run, arm: str) -> tuple[Any, ...]:
    order = arms.schedule(run, arm) if arms.by_layer(run, arm) else ""
    arrival = arms.split(run, arm)["arrival"]
    return (*arms.kind(run, arm), order, arrival)


def timeline_figures(run: Run, words: Words) -> Iterator[Figure]:
    for arm in timeline_arms(run):
        panels = {}
        for backend in spent.shown(run):
            trial = next((t for t in run.select(arm, backend) if t.timelines), None)
            found = events.rows(run, trial) if trial is not None else []
            if found:
                panels[backend] = found
        if panels:
            yield _figure(run, arm, panels, words)


def _figure(run: Run, arm: str, panels: dict[str, list[Row]], words: Words) -> Figure:
    name, n = f"timeline-{slug(arm)}", ranks.size(run, arm)
    told = {backend: _bars(found) for backend, found in panels.items()}
    end = max(bar.end for bars in told.values() for bar in bars)
    there = {b: {bar.rank for bar in bars} for b, bars in told.items()}
    idle = {
        b: [1 - pipelines.covered(bars, r) / _last(bars) for r in range(n)]
        for b, bars in told.items()
    }
    with style.canvas(style.WIDTH, 0.75 + len(told) * (0.42 + pipelines.INCHES * n)) as made:
        grid = made.subplots(len(told), 1, sharex=True, squeeze=False)[:, 0]
        for axes, (backend, bars) in zip(grid, told.items(), strict=True):
            pipelines.lanes(axes, n, _last(bars), words)
            pipelines.draw(axes, bars, (style.WIDTH - 1.6) / end)
            axes.set_xlim(0, end)
            axes.set_title(backend, fontsize=9)
            shares = [
                words("pipeline.idle", share=f"{100 * x:.0f}") if r in there[backend] else "–"
                for r, x in enumerate(idle[backend])
            ]
            pipelines.beside(axes, shares)
        grid[-1].set_xlabel(words("pipeline.time"))
        pipelines.legend(made, [bar for bars in told.values() for bar in bars], words)
        text = style.svg(made, name)
    caption = words("splits.figure.timeline", arm=arm, told=arms.told(run, arm, words))
    if any(len(ranks_there) < n for ranks_there in there.values()):
        caption = words.sentences([caption, words("splits.figure.unrecorded")])
    values = [f"{b}: {pipelines.told_idle(shares, words)}" for b, shares in idle.items()]
    alt = words("pipeline.alt.timeline", ms=f"{end:.3g}", values=words.semicolons(values))
    return Figure(name, text, caption, alt)


def _bars(found: Sequence[Row]) -> list[Bar]:
    """In milliseconds from the first event."""
    begin = min(row[3] for row in found)
    return pipelines.toned(
        (r, t, k, (a - begin) * 1e3, (b - begin) * 1e3) for r, t, k, a, b in found
    )


def _last(bars: Sequence[Bar]) -> float:
    return max(bar.end for bar in bars) or 1.0
