"""The trajectory of a trial that ended well, read back for comparison."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dualml.common.errors import UserError
from dualml.experiment.store.envelope import Envelope, read_envelope
from dualml.experiment.store.records import read_records, update_losses
from dualml.experiment.store.tensors import read_trace, read_weights
from dualml.experiment.store.trial import RESULT

PHASES = ("data", "forward", "loss", "gradient", "update", "state")


@dataclass(frozen=True)
class Trajectory:
    """Losses, traced tensors and results of one trial.

    Attributes:
        losses: (updates,) training loss of every update.
        tensors: ``PHASE/STEP/TENSOR`` → array at the traced steps.
        data: traced step → SHA-256 of the batch as the framework held it.
        envelope: rounding envelope of this backend; None where there is none, see `read_envelope`.
        replica_divergence: traced step → distance of each rank's weights from rank 0's, if all
            ranks should hold the same weights.
        outcome: ``final_loss``, ``test_accuracy`` and the final ``weights``, in layer order.
    """

    backend: str
    losses: NDArray[np.float64]
    tensors: dict[str, NDArray[Any]]
    data: dict[int, str]
    envelope: Envelope | None
    final_loss: float
    test_accuracy: float
    weights: dict[str, NDArray[Any]]
    replica_divergence: dict[int, list[float]] = field(default_factory=dict)

    def steps(self) -> list[int]:
        """Return the traced steps, sorted."""
        return sorted(self.data)


def read_trajectory(
    folder: Path, backend: str, parameters: Mapping[str, tuple[int, ...]]
) -> Trajectory:
    """Read the trajectory of a trial that ended well from its folder.

    Args:
        backend: the trial's backend.
        parameters: name → shape by the plan, in layer order.

    Raises:
        UserError: a file of the trial is missing or damaged.
    """
    result = RESULT.read(folder)
    if result.final_loss is None or result.test_accuracy is None:
        raise UserError(f"{folder / RESULT.name}: final_loss or test_accuracy is missing")
    return Trajectory(
        backend=backend,
        losses=update_losses(folder, 0, read_records(folder), result.updates),
        tensors=read_trace(folder, parameters),
        data={int(step): digest for step, digest in result.data.items()},
        envelope=read_envelope(folder),
        final_loss=result.final_loss,
        test_accuracy=result.test_accuracy,
        weights=read_weights(folder, parameters),
        replica_divergence={
            int(step): [math.inf if far is None else far for far in ranks]
            for step, ranks in result.apart.items()
        },
    )
