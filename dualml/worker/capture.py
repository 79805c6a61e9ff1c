"""The tensors of one update as a trace: keys ``PHASE/STEP/TENSOR``, see docs/run-folder.md."""

from __future__ import annotations

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
    out = {f"forward/{step:08d}/{n}": np.ascontiguousarray(v) for n, v in seen.activations.items()}
    for name, value in seen.gradients.items():
        out[f"gradient/{step:08d}/{name}"] = np.ascontiguousarray(value)
    return out, seen.data


def after(training: Training, step: int) -> Arrays:
    """Weights and optimizer state after update ``step``."""
    out = {f"update/{step:08d}/{n}": np.ascontiguousarray(w) for n, w in training.weights().items()}
    for slot, named in training.state().items():
        for name, value in named.items():
            out[f"state/{step:08d}/{slot}/{name}"] = np.ascontiguousarray(value)
    return out
