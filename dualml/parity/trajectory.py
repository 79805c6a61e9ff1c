"""What a finished trial left behind, read back for comparison."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import load_file

from dualml.files import read_json, readable
from dualml.parity.envelope import Envelope
from dualml.runner.records import read_records

PHASES = ("data", "forward", "loss", "gradient", "update", "state")


@dataclass(frozen=True)
class Trajectory:
    """One trial's evidence.

    Attributes:
        losses: (updates,) training loss of every update.
        tensors: ``PHASE/STEP/TENSOR`` → array at the traced steps.
        data: traced step → SHA-256 of the batch as the framework held it.
        envelope: rounding envelope of this backend, None for the float64 referee.
        apart: traced step → how far each rank's weights are from rank 0's, where all should hold
            the same.
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
    apart: dict[int, list[float]] = field(default_factory=dict)

    def steps(self) -> list[int]:
        return sorted(self.data)


def read_trajectory(folder: Path, backend: str, parameters: Sequence[str]) -> Trajectory:
    """Read a trial's folder; the trial must have ended well.

    Args:
        parameters: names in layer order, which the file of the weights does not keep.

    Raises:
        UserError: a file of it is missing or damaged.
    """
    with readable(f"{folder}: not a readable trial"):
        return read(folder, backend, parameters)


def read(folder: Path, backend: str, parameters: Sequence[str]) -> Trajectory:
    result = read_json(folder / "result.json")
    records = read_records(folder / "rank0.jsonl")
    losses = [r["value"] for r in records if r["metric"] == "loss"]
    weights = load_file(folder / "weights.safetensors")
    drawn = folder / "envelope.json"
    return Trajectory(
        backend=backend,
        losses=np.array(losses, np.float64),
        tensors=load_file(folder / "trace.safetensors"),
        data={int(step): digest for step, digest in result["data"].items()},
        envelope=Envelope(read_json(drawn)) if drawn.exists() else None,
        final_loss=result["final_loss"],
        test_accuracy=result["test_accuracy"],
        weights={name: weights[name] for name in parameters},
        apart={int(step): ranks for step, ranks in result.get("apart", {}).items()},
    )
