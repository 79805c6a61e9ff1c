"""What every rank of a trial holds in memory: counted once, before the clock runs."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from dualml.backend import Metered, Weighable
from dualml.errors import Unsupported

if TYPE_CHECKING:
    from dualml.worker.trial import Trial


def weigh(trial: Trial, batch: Any, step: int) -> list[dict[str, int | None]]:
    """Rank → bytes (`dualml.store.manifest.DeviceMemory`); empty where the training cannot count.

    All ranks call it together, after the warm-up; the training is then where it starts.

    Args:
        batch, step: of an update as large as they come.
    """
    try:
        own = trial.training.ability(Weighable).memory(batch)
    except Unsupported:
        return []
    peak = None
    if isinstance(trial.backend, Metered):
        peak = trial.backend.peak(lambda: trial.training.step(batch, step))
    if peak is not None:  # an update was made
        trial.restart(dict(trial.initial))
    return trial.ranks.of_each({**asdict(own), "device_peak": peak})
