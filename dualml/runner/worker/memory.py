"""Memory report of every rank of a trial, measured once before the clock starts."""

from __future__ import annotations

import math
from dataclasses import asdict
from typing import Any

from dualml.backend import PeakMemory
from dualml.common.errors import Unsupported
from dualml.runner.worker.setup import TrialSetup


def measure_memory(trial: TrialSetup, batch: Any, step: int) -> dict[str, int | None]:
    """Measure this rank's memory in bytes by purpose
    (`dualml.experiment.store.manifest.DeviceMemory`).

    All ranks call it together, after an update and before the training starts again, because
    optimizers create their state on first use. They exchange the numbers only after the restart:
    until then a server that waits for nobody still has updates in flight.

    Args:
        trial: the trial of this rank.
        batch, step: of the largest update. Where the allocator reports a peak, the trial is
            restarted and two updates are made with this batch (one if the schedule has only one).

    Returns:
        Purpose → bytes, with ``device_peak`` (None if unknown) and ``parameters``, their number;
        empty where the training cannot report memory.
    """
    try:
        own = trial.trainer.measure_memory(batch)
    except Unsupported:
        return {}
    peak = None
    if isinstance(trial.backend, PeakMemory):
        trial.restart(dict(trial.initial))  # a list of rates ends with the trial
        # Two updates: PyTorch allocates the optimizer state only after the first backward pass.
        steps = (step, step + 1)[: trial.schedule.updates]
        peak = trial.backend.measure_peak(lambda: [trial.trainer.step(batch, s) for s in steps])
    return {"parameters": count_parameters(trial), **asdict(own), "device_peak": peak}


def count_parameters(trial: TrialSetup) -> int:
    """Return the number of parameter elements this rank holds by the split plan, whatever the
    framework allocates; those of the whole model where it is not split, also if ZeRO shards it."""
    plan, shapes = trial.plan.splits.get(trial.arm_name), [*trial.spec.parameters().values()]
    if plan is not None:
        shapes = [piece.local_shape for piece in plan.rank_stages(trial.ranks.rank)[1].values()]
    return sum(map(math.prod, shapes))
