"""What every rank of a trial holds in memory: counted once, before the clock runs."""

from __future__ import annotations

import math
from dataclasses import asdict
from typing import Any

from dualml.backend import Metered, Weighable
from dualml.errors import Unsupported
from dualml.worker.setup import Setup


def weigh(trial: Setup, batch: Any, step: int) -> dict[str, int | None]:
    """Of this rank, bytes by what they are for (`dualml.store.manifest.DeviceMemory`); empty where
    the training cannot count.

    All ranks call it together, after an update and before the training starts again: optimizers
    make their state when they first need it. They tell one another what they counted only when it
    has started again: a server that waits for nobody has updates under way until then.

    Args:
        batch, step: of an update as large as they come; made twice where an allocator tells the
            peak.
    """
    try:
        own = trial.training.ability(Weighable).memory(batch)
    except Unsupported:
        return {}
    peak = None
    if isinstance(trial.backend, Metered):
        trial.restart(dict(trial.initial))  # a list of rates ends with the trial
        # The second one's, too: PyTorch makes the state only after the first one's backward pass.
        steps = (step, step + 1)[: trial.schedule.updates]
        peak = trial.backend.peak(lambda: [trial.training.step(batch, s) for s in steps])
    return {"parameters": parameters(trial), **asdict(own), "device_peak": peak}


def parameters(trial: Setup) -> int:
    """How many this rank has by the plan, whatever the framework holds."""
    plan, shapes = trial.plan.splits.get(trial.arm_name), [*trial.spec.parameters().values()]
    if plan is not None:
        shapes = [piece.local for piece in plan.views(trial.ranks.rank)[1].values()]
    return sum(map(math.prod, shapes))
