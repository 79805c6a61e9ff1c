"""Whether a schedule can be carried out at all, and what is wrong with one that cannot."""

from __future__ import annotations

from collections.abc import Sequence

from dualml.errors import UserError
from dualml.split.order import deadlock, needs, told
from dualml.split.schedule import Action, Grid, backward, forward


def validate(grid: Grid, live: int | Sequence[int] | None = None, *, ticks: bool = True) -> None:
    """Every pass once and on its owner's row, no deadlock, no tick before those it waits for.

    The programs are looked at first, as a real run has no ticks; the ticks come last.

    Args:
        grid: a schedule from anywhere.
        live: the most activations that a rank may hold at once: one number for all ranks, or one
            for each; None: any.
        ticks: whether the ticks must fit, too.

    Raises:
        UserError: the first thing that is wrong, with its place; a deadlock with its cycle.
    """
    _owners(grid)
    _complete(grid)
    cycle = deadlock(grid.programs(), grid.owners)
    if cycle:
        raise UserError(f"this schedule deadlocks: {told(cycle)}")
    if live is not None:
        limits = [live] * grid.ranks if isinstance(live, int) else list(live)
        if len(limits) != grid.ranks:
            raise UserError(f"live bounds for {len(limits)} ranks; the grid has {grid.ranks}")
        _bounded(grid, limits)
    if ticks:
        _ticks(grid)


def _owners(grid: Grid) -> None:
    if not grid.owners or grid.micro_batches < 1:
        raise UserError(
            "a schedule has at least one stage and one micro-batch; "
            f"received {grid.stages} and {grid.micro_batches}"
        )
    for stage, rank in enumerate(grid.owners):
        if not 0 <= rank < grid.ranks:
            raise UserError(
                f"stage {stage} is owned by rank {rank}; the grid has {grid.ranks} rows"
            )


def _complete(grid: Grid) -> None:
    seen: dict[Action, int] = {}
    for rank, row in enumerate(grid.rows):
        for tick, action in enumerate(row):
            if action is None:
                continue
            place = f"rank {rank}, tick {tick}: {action}"
            if not (0 <= action.stage < grid.stages and 0 <= action.micro < grid.micro_batches):
                raise UserError(
                    f"{place} does not exist; stages go from 0 to {grid.stages - 1}, "
                    f"micro-batches from 0 to {grid.micro_batches - 1}"
                )
            if grid.owners[action.stage] != rank:
                raise UserError(
                    f"{place} belongs on the row of rank {grid.owners[action.stage]}, "
                    f"which owns stage {action.stage}"
                )
            if action in seen:
                raise UserError(f"{place} was done before, in tick {seen[action]}")
            seen[action] = tick
    wanted = (
        make(stage, k)
        for stage in range(grid.stages)
        for make in (forward, backward)
        for k in range(grid.micro_batches)
    )
    missing = [action for action in wanted if action not in seen]
    if missing:
        more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
        raise UserError(
            f"{missing[0]} is missing on the row of rank {grid.owners[missing[0].stage]}{more}; "
            f"each of {grid.stages} stages does F and B once for each of {grid.micro_batches} "
            "micro-batches"
        )


def _bounded(grid: Grid, limits: Sequence[int]) -> None:
    for rank, most in enumerate(limits):
        held = grid.live(rank)
        if held > most:
            raise UserError(
                f"rank {rank} holds {held} activations at once, more than {most}: "
                "let it go backward earlier"
            )


def _ticks(grid: Grid) -> None:
    at = {a: tick for row in grid.rows for tick, a in enumerate(row) if a is not None}
    for action, tick in sorted(at.items(), key=lambda item: item[1]):
        for need in needs(action, grid.stages):
            if at[need] >= tick:
                raise UserError(
                    f"rank {grid.owners[action.stage]}, tick {tick}: {action} needs {need}, "
                    f"which rank {grid.owners[need.stage]} does in tick {at[need]}; "
                    "put idle ticks (.) before it"
                )
