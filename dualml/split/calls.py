"""Stages that one rank, the driver, calls by remote procedure calls: who has them, and when."""

from __future__ import annotations

from dualml.errors import UserError
from dualml.split.schedule import Grid
from dualml.split.schedules import build


def placed(stages: int, world_size: int) -> tuple[int, ...]:
    """Stage → rank where nothing is said: on as many ranks, or one more, which then is a master.

    Raises:
        UserError: another number of ranks.
    """
    if world_size not in (stages, stages + 1):
        raise UserError(
            f"{stages} stages by rpc take {stages} ranks, or {stages + 1} with a master that holds "
            f"none; received world_size = {world_size}; change it or stages, or say place"
        )
    return tuple(range(world_size - stages, world_size))


def grid(place: tuple[int, ...], schedule: str, micro_batches: int) -> Grid:
    """The schedule's grid; a rank 0 that holds no stage idles."""
    if 0 in place:
        return build(schedule, place, micro_batches)
    workers = build(schedule, [rank - 1 for rank in place], micro_batches)
    idle = (None,) * workers.ticks
    return Grid((idle, *workers.rows), place, micro_batches)
