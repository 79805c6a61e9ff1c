"""Stages that one rank, the driver, calls by remote procedure calls: who has them, what crosses.

The driver has the data and the loss. It calls a stage with an activation and passes what it gets
back on to the next stage; gradients go the same way back. So all of them cross its links.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from dualml.errors import UserError
from dualml.split.schedule import Grid
from dualml.split.schedules import build

if TYPE_CHECKING:
    from dualml.split.plan import SplitPlan


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


def crossing(
    plan: SplitPlan, batch: int, width: int
) -> dict[tuple[int, int, str], tuple[int, int]]:
    """(source, target, what) → messages and bytes of an update, elements being ``width`` wide."""
    crossings: dict[tuple[int, int, str], tuple[int, int]] = {}
    layers, driver = dict(plan.spec.layers), plan.driver
    learns = [any(layers[n].parameters() for n in names) for names in plan.stages]
    for _, _, _, size in plan.micro(batch):
        for stage, there in enumerate(plan.place):
            into = plan.boundary(stage - 1) if stage else math.prod(plan.spec.input_shape)
            out, below, own = plan.boundary(stage), any(learns[:stage]), learns[stage]
            for source, target, what, elements, needed in (
                (driver, there, "activations" if stage else "samples", into, True),
                (there, driver, "activations", out, True),
                (driver, there, "gradients", out, below or own),
                (there, driver, "gradients", into, below),
            ):
                if size and needed and source != target:
                    count, total = crossings.get((source, target, what), (0, 0))
                    crossings[source, target, what] = (count + 1, total + size * elements * width)
    return crossings
