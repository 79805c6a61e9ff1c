"""What every rank of a trial holds in memory: counted once, before the clock runs."""

from __future__ import annotations

import math
from dataclasses import asdict
from typing import Any

from dualml.backend import Metered, Weighable
from dualml.errors import Unsupported
from dualml.worker.setup import Setup


def weigh(trial: Setup, batch: Any, step: int) -> list[dict[str, int | None]]:
    """Rank → bytes (`dualml.store.manifest.DeviceMemory`); empty where the training cannot count.

    All ranks call it together, after an update and before the training starts again: optimizers
    make their state when they first need it.

    Args:
        batch, step: of an update as large as they come; made where an allocator tells its peak.
    """
    try:
        own = trial.training.ability(Weighable).memory(batch)
    except Unsupported:
        return []
    peak = None
    if isinstance(trial.backend, Metered):
        trial.restart(dict(trial.initial))  # a list of rates ends with the trial
        peak = trial.backend.peak(lambda: trial.training.step(batch, step))
    numbers = {"parameters": parameters(trial), **asdict(own), "device_peak": peak}
    return trial.ranks.of_each(numbers)


def parameters(trial: Setup) -> int:
    """How many this rank has by the plan, whatever the framework holds."""
    plan, shapes = trial.plan.splits.get(trial.arm_name), [*trial.spec.parameters().values()]
    if plan is not None:
        shapes = [piece.local for piece in plan.views(trial.ranks.rank)[1].values()]
    return sum(map(math.prod, shapes))
