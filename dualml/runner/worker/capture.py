"""Record the tensors of one update as a trace with keys ``PHASE/STEP/TENSOR``
(docs/run-folder.md)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dualml.parallel.trainer import Trainer

Arrays = dict[str, NDArray[Any]]
PROBE = 8  # samples whose activations are kept


def trace_pre_update(
    trainer: Trainer, step: int, batch: NDArray[np.int64], probe: NDArray[np.int64]
) -> tuple[Arrays, str]:
    """Return (arrays, digest) before update ``step``: the activations of the samples with indices
    ``probe`` and the gradients of ``batch``, combined over the ranks, by ``PHASE/STEP/TENSOR``;
    SHA-256 of the batch's data. The weights stay as they are; all ranks call it."""
    seen = trainer.trace(batch, probe)
    arrays = prefix_keys("forward", step, seen.activations) | prefix_keys(
        "gradient", step, seen.gradients
    )
    return arrays, seen.data


def trace_post_update(trainer: Trainer, step: int) -> Arrays:
    """Return the current weights and optimizer state, under trace keys of update ``step``, which
    the caller has just made. All ranks call it."""
    arrays = prefix_keys("update", step, trainer.model.weights())
    for slot, named in trainer.state().items():
        arrays |= prefix_keys(
            "state", step, {f"{slot}/{name}": value for name, value in named.items()}
        )
    return arrays


def prefix_keys(phase: str, step: int, arrays: Mapping[str, NDArray[Any]]) -> Arrays:
    """Return the arrays under their trace keys ``PHASE/STEP/NAME``, STEP with eight digits, all
    C-contiguous."""
    return {f"{phase}/{step:08d}/{n}": np.ascontiguousarray(a) for n, a in arrays.items()}
