"""Estimate what a comparison takes from the shapes of the model's parameters: the memory of a step,
and the disk of the traces.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dualml.algorithms.optim import rule_from
from dualml.common.errors import UserError
from dualml.common.machine import usable_memory
from dualml.parity.models.partners import Tensor

#: File in which side a says whether side b runs at the same time.
SIZE = "size.json"
#: Bytes of weights up to which both sides run at once: then loading the frameworks takes longer
#: than the steps, and both fit anywhere.
TOGETHER_BYTES = 64 << 20
#: Bytes of a process that has imported a framework.
FRAMEWORK_BYTES = 500 << 20
#: Number of states per parameter that a user's own optimizer is taken to have: those of Adam.
USUAL_STATES = 2


@dataclass(frozen=True)
class ComparisonSize:
    """Memory and disk that a comparison takes at least; activations are unknown before a step.

    Attributes:
        parameters: number of elements of all parameters and buffers.
        weights: bytes of all parameters and buffers.
        memory: bytes of a step of one side: weights, gradients, the optimizer's state.
        disk: bytes of both traces and of what the draws keep between steps.
    """

    parameters: int
    weights: int
    memory: int
    disk: int

    def fits_twice(self) -> bool:
        """Return whether both sides should run at the same time: the model is small
        (`TOGETHER_BYTES`), and there is memory for two steps."""
        return self.weights <= TOGETHER_BYTES and 2 * self.memory <= free_memory()


def free_memory() -> int:
    """Return the bytes of memory that new data may take without swapping."""
    import psutil

    return min(int(psutil.virtual_memory().available), usable_memory())


def estimate_size(tensors: Sequence[Tensor], job: dict[str, Any]) -> ComparisonSize:
    """Return what a comparison takes at least, from the tensors of side ``a`` and the job."""
    count = sum(one.size for one in tensors)
    trained = 4 * sum(one.size for one in tensors if one.trained)
    weights, side = 4 * count, job["sides"]["a"]
    states = 0
    if side["optimizer"] is not None:
        rule = side["optimizer"].get("rule")
        states = USUAL_STATES if rule is None else len(rule_from(rule).state_keys)
    gradients = 0 if side["loss"] == "none" else trained
    memory = FRAMEWORK_BYTES + weights + gradients + states * trained
    of_step = weights + gradients + states * trained
    kept = job["draws"] * (weights + states * trained) if job["steps"] > 1 else 0
    return ComparisonSize(count, weights, memory, 2 * (weights + job["steps"] * of_step) + kept)


def check_resources(size: ComparisonSize, folder: Path) -> None:
    """Raise `UserError` if there is less memory than ``size`` says, or less space on the disk of
    ``folder``."""
    free, model = shutil.disk_usage(folder).free, f"a model of {size.parameters:,} parameters"
    less = "an optimizer with less state or none, or loss='none' (forward only)"
    if size.disk > free:
        raise UserError(
            f"{model}: both traces take at least {size.disk / 1e9:.1f} GB, and {folder} has "
            f"{free / 1e9:.1f} GB; name a larger disk with folder= or TMPDIR, or compare fewer "
            f"steps, {less}"
        )
    if size.memory > (memory := free_memory() + size.weights):  # the model is there already
        raise UserError(
            f"{model}: a step takes at least {size.memory / 1e9:.1f} GB of memory, and "
            f"{memory / 1e9:.1f} GB are free; end other programs, or compare with {less}"
        )
