"""The schedules of the arms as grids of ticks, each once."""

from __future__ import annotations

from collections.abc import Iterator

from dualml.errors import UserError
from dualml.report.model import Run
from dualml.report.pipelines import grid_figure
from dualml.report.splits import arms
from dualml.report.splits.principle import piped
from dualml.report.style import Figure, slug
from dualml.report.words import Words
from dualml.split.schedule import Grid

MOST, GOOD = 5, 4  # figures, micro-batches that show what a schedule does


def grid_of(run: Run, arm: str) -> Grid | None:
    """The arm's schedule; None where the plan has none that can be read."""
    plan = arms.plan(run, arm)
    if not plan.get("grid") or arms.split(run, arm)["engine"] == "rpc":
        return None
    owners = [min(place, 1) for place in plan["place"]] if plan.get("trainers", 1) > 1 else None
    try:
        return Grid.parse(plan["grid"], owners or plan["place"], plan["micro_batches"])
    except (UserError, KeyError):
        return None


def ideal(run: Run, arm: str) -> float | None:
    """Share of idle ticks, all passes being equally long; only of ranks with a row each."""
    grid = grid_of(run, arm) if arms.piped(run, arm) else None
    return grid.idle() if grid is not None else None


def grid_figures(run: Run, words: Words) -> Iterator[Figure]:
    """Of every schedule the arm whose number of micro-batches shows it best."""
    found: dict[tuple[str, int], str] = {}
    for arm in piped(run):
        grid = grid_of(run, arm)
        if grid is None:
            continue
        key = (arms.schedule(run, arm), arms.stages(run, arm))
        best = found.get(key)
        if best is None or _far(run, arm) < _far(run, best):
            found[key] = arm
    for arm in [*found.values()][:MOST]:
        grid = grid_of(run, arm)
        assert grid is not None
        told = words(
            "splits.figure.grid",
            name=arms.called(arms.schedule(run, arm), words),
            m=arms.micro_batches(run, arm),
            stages=words.count("stage", arms.stages(run, arm)),
            arm=arm,
        )
        yield grid_figure(f"grid-{slug(arm)}", grid, words, caption=told)


def _far(run: Run, arm: str) -> int:
    return abs(arms.micro_batches(run, arm) - GOOD)
