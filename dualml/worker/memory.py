"""Memory report of every rank of a trial, measured once before the clock starts."""

from __future__ import annotations

import math
from dataclasses import asdict
from typing import Any

from dualml.backend import Metered, Weighable
from dualml.errors import Unsupported
from dualml.worker.setup import Setup


def weigh(trial: Setup, batch: Any, step: int) -> dict[str, int | None]:
    """Measure this rank's memory in bytes by purpose (`dualml.store.manifest.DeviceMemory`).

    All ranks call it together, after an update and before the training starts again, because
    optimizers create their state on first use. They exchange the numbers only after the restart:
    until then a server that waits for nobody still has updates in flight.

    Args:
        trial: the trial of this rank.
        batch, step: of the largest update; it is made twice where the allocator reports a peak.

    Returns:
        Purpose → bytes; empty where the training cannot report memory.
    """
    try:
        own = trial.training.ability(Weighable).memory(batch)
    except Unsupported:
        return {}
    peak = None
    if isinstance(trial.backend, Metered):
        trial.restart(dict(trial.initial))  # a list of rates ends with the trial
        # Two updates: PyTorch allocates the optimizer state only after the first backward pass.
        steps = (step, step + 1)[: trial.schedule.updates]
        peak = trial.backend.peak(lambda: [trial.training.step(batch, s) for s in steps])
    return {"parameters": parameters(trial), **asdict(own), "device_peak": peak}


def parameters(trial: Setup) -> int:
    """Return the number of parameters this rank holds by the plan, whatever the framework
    allocates."""
    plan, shapes = trial.plan.splits.get(trial.arm_name), [*trial.spec.parameters().values()]
    if plan is not None:
        shapes = [piece.local for piece in plan.views(trial.ranks.rank)[1].values()]
    return sum(map(math.prod, shapes))
