"""The NumPy backend: the interface of the frameworks' backends, implemented by hand in float64."""

from __future__ import annotations

import os
import platform
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from dualml.algorithms.communicator import Communicator
from dualml.backend import (
    Array,
    Backend,
    DevicePlacement,
    PipelineStages,
    RemoteProcedureCalls,
    Segment,
    TrainingSpec,
)
from dualml.backend.devices import check_present
from dualml.backend.reference.parallel import NumpyParallel
from dualml.backend.reference.split import NumpyPlacedStage, NumpyStage
from dualml.common import machine
from dualml.common.errors import UserError

VARIABLES = tuple(machine.thread_variables(1))


class NumpyBackend(Backend, PipelineStages, DevicePlacement):
    """Float64 NumPy implementation of `dualml.backend.Backend`.

    Raises:
        UserError: a device other than ``auto`` or ``cpu``.
    """

    name = "numpy"
    dtype = "float64"
    missing_reasons: ClassVar = {
        RemoteProcedureCalls: "the NumPy reference has no remote procedure calls: its ranks are "
        'threads of one process; engine = "messages" runs the same split'
    }

    def __init__(self, device: str = "auto", threads: int = 0) -> None:
        if device not in ("auto", "cpu"):
            raise UserError(f"backend numpy runs on the CPU only; received --device {device}")
        self.threads = threads

    def environment(self) -> dict[str, str]:
        """Return versions, threads, thread variables and machine facts of this process, by name."""
        return {
            "numpy": np.__version__,
            "python": platform.python_version(),
            "device": "cpu",
            "threads": str(self.threads or machine.default_threads()),
            "dtype": self.dtype,
            "deterministic": "yes",
            **{name: os.environ[name] for name in VARIABLES if name in os.environ},
            **machine.environment(),
        }

    def training(self, recipe: TrainingSpec) -> NumpyParallel:
        """Return the float64 training of ``recipe``, with buckets for data parallel ranks."""
        return NumpyParallel(recipe)

    def stage(
        self, segments: Sequence[Segment], recipe: TrainingSpec, *, first: bool, last: bool
    ) -> NumpyStage:
        """Return the float64 stage of these segments; the reference does not need ``last``."""
        return NumpyStage(segments, recipe, first=first)

    def placed_stage(
        self,
        segments: Sequence[Segment],
        recipe: TrainingSpec,
        devices: Sequence[str],
        comm: Communicator,
    ) -> NumpyPlacedStage:
        """Return a stage of all segments on logical devices; raise `Unsupported` if ``devices``
        name others than the CPU's. ``comm`` is not used."""
        check_present(devices, {}, dict.fromkeys(("cuda", "ascend"), "NumPy drives the CPU only"))
        return NumpyPlacedStage(segments, recipe, first=True)

    def materialize_losses(self, losses: Sequence[Any]) -> Array:
        """Return the losses, which are Python floats already, as a float64 array."""
        return np.array(losses, np.float64)

    def synchronize(self) -> None:
        """Do nothing, because NumPy computes synchronously."""
