"""The tensors of one update as a trace: keys ``PHASE/STEP/TENSOR``, see docs/run-folder.md."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dualml.backend import Training

Arrays = dict[str, NDArray[Any]]
PROBE = 8  # samples whose activations are kept


def before(
    training: Training, step: int, batch: NDArray[np.int64], probe: NDArray[np.int64]
) -> tuple[Arrays, str]:
    """Activations of ``probe`` and gradients of ``batch`` before update ``step``; its SHA-256."""
    seen = training.trace(batch, probe)
    arrays = keyed("forward", step, seen.activations) | keyed("gradient", step, seen.gradients)
    return arrays, seen.data


def after(training: Training, step: int) -> Arrays:
    """Weights and optimizer state after update ``step``."""
    arrays = keyed("update", step, training.weights())
    for slot, named in training.state().items():
        arrays |= keyed("state", step, {f"{slot}/{name}": value for name, value in named.items()})
    return arrays


def keyed(phase: str, step: int, arrays: Mapping[str, NDArray[Any]]) -> Arrays:
    return {f"{phase}/{step:08d}/{n}": np.ascontiguousarray(a) for n, a in arrays.items()}
