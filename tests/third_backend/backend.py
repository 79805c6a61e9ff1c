"""The `Backend` class: float32 NumPy on the CPU."""

from __future__ import annotations

import platform
from collections.abc import Sequence
from typing import Any

import numpy as np

from dualml.algorithms.communicator import Communicator, RankContext
from dualml.backend import Backend, PipelineStages, ProcessGroups, Segment, TrainingSpec
from third_backend.communicator import connect
from third_backend.stage import SingleStage
from third_backend.training import SingleTraining


class SingleBackend(Backend, ProcessGroups, PipelineStages):
    """A float32 NumPy backend that implements `dualml.backend.Backend`, process groups and pipeline
    stages."""

    name = "single"
    dtype = "float32"

    def __init__(self, device: str = "auto", threads: int = 0) -> None:
        self.threads = threads

    def environment(self) -> dict[str, str]:
        return {
            "numpy": np.__version__,
            "python": platform.python_version(),
            "device": "cpu",
            "threads": str(self.threads),
            "dtype": self.dtype,
        }

    def training(self, recipe: TrainingSpec) -> SingleTraining:
        return SingleTraining(recipe)

    def stage(
        self, segments: Sequence[Segment], recipe: TrainingSpec, *, first: bool, last: bool
    ) -> SingleStage:
        return SingleStage(segments, recipe, first=first)

    def connect(self, place: RankContext) -> Communicator:
        return connect(place)

    def materialize_losses(self, losses: Sequence[Any]) -> np.ndarray:
        return np.array(losses, np.float64)

    def synchronize(self) -> None:
        """Do nothing: NumPy computes synchronously."""
