"""The MindSpore backend: one device in one process, every step compiled unless asked otherwise."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

import mindspore as ms
import numpy as np

from dualml.algorithms.communicator import Communicator, RankContext
from dualml.backend import (
    Array,
    Backend,
    DevicePlacement,
    PeakMemory,
    PipelineStages,
    ProcessGroups,
    RemoteProcedureCalls,
    Segment,
    TrainingSpec,
)
from dualml.common.errors import Unsupported
from dualml.experiment.methods.engine import EngineSupport, MethodTraining
from dualml_ms.algorithms.memory import measure_peak_memory
from dualml_ms.common.environment import environment, execution_mode, resolve_device
from dualml_ms.parallel.devices import MindSporePlacedStage
from dualml_ms.parallel.parallel import MindSporeParallel
from dualml_ms.parallel.split import MindSporeStage


class MindSporeBackend(
    Backend, ProcessGroups, PipelineStages, DevicePlacement, PeakMemory, EngineSupport
):
    """MindSpore implementation of `dualml.backend.Backend`.

    Args:
        device: ``auto``, ``cpu``, ``gpu``, ``cuda`` or ``ascend``.
        threads: recorded; MindSpore takes its threads from the environment of the process.

    Raises:
        UserError, Unsupported: a device that does not exist, or that this build cannot drive.
    """

    name = "mindspore"
    dtype = "float32"
    missing_reasons: ClassVar = {
        RemoteProcedureCalls: "MindSpore ignores Primitive.place on a CPU and has no remote "
        'procedure calls; engine = "messages" runs the same split'
    }

    def __init__(self, device: str = "auto", threads: int = 0) -> None:
        self.device, self.threads = resolve_device(device), threads
        ms.set_context(mode=execution_mode())
        if ms.get_context("deterministic") != "ON":  # once per process
            ms.set_deterministic(True)  # kernels on a CPU repeat bit for bit anyway
        ms.set_seed(0)  # nothing here uses it; a stray draw would at least repeat

    def environment(self) -> dict[str, str]:
        """Return the versions, device and settings that decide this process's numbers and speed, as
        flat text. On a CPU the first call in a process sets up its `graph_cache`."""
        return environment(self.device, self.threads)

    def training(self, recipe: TrainingSpec) -> MindSporeParallel:
        """Make the training of a whole model on this device, whose batches can be split over
        ranks."""
        return MindSporeParallel(recipe)

    def stage(
        self, segments: Sequence[Segment], recipe: TrainingSpec, *, first: bool, last: bool
    ) -> MindSporeStage:
        """Make one rank's part of a split model from its ``segments``, the layers of its stages;
        see `MindSporeStage` for ``first`` and ``last``."""
        return MindSporeStage(segments, recipe, first=first, last=last)

    def placed_stage(
        self,
        segments: Sequence[Segment],
        recipe: TrainingSpec,
        devices: Sequence[str],
        comm: Communicator,
    ) -> MindSporePlacedStage:
        """Make all stages of a model on logical ``devices`` of this process; raise `Unsupported`
        for other devices. ``comm`` is not used."""
        return MindSporePlacedStage(segments, recipe, devices)

    def method(
        self,
        name: str,
        recipe: TrainingSpec,
        comm: Communicator | None,
        config: Mapping[str, Any] | None = None,
    ) -> MethodTraining:
        """Make the MindSpore training method ``name`` (`dualml.experiment.methods`); all ranks of
        ``comm``, None for a single process, call it. Raise `Unsupported` if MindSpore does not have
        it, it does not run here, or ``config`` is neither None nor empty."""
        from dualml_ms.experiment.methods import make_method

        return make_method(name, recipe, comm, config)

    def materialize_losses(self, losses: Sequence[Any]) -> Array:
        """Return the mean loss of each update as float64 (n,). ``losses`` has for each the list of
        pairs (loss, share) of its chunks, which are multiplied and added up. Waits until they are
        computed."""
        return np.array(
            [sum(float(loss.asnumpy()) * share for loss, share in parts) for parts in losses]
        )

    def connect(self, place: RankContext) -> Communicator:
        """Join the other ranks of a trial by ``mccl`` and return the communicator.

        Raises:
            CommunicationError, UserError: see `dualml_ms.algorithms.cluster.join`.
            Unsupported: ranks on a device other than the CPU, also with messages staged on the
                host.
        """
        from dualml_ms.algorithms.communicator import connect

        if place.host_staged and self.device != "CPU":
            raise Unsupported(
                f"split.transport = host: MindSpore's groups on {self.device} send from the device "
                "alone; leave it out"
            )
        return connect(place)

    def measure_peak(self, work: Callable[[], object]) -> int | None:
        """Run ``work`` and return the peak bytes allocated on the device meanwhile, those allocated
        before included; None on a CPU, where ``work`` is not run."""
        return measure_peak_memory(self.device, work)

    def synchronize(self) -> None:
        """Wait until an accelerator has finished its work; do nothing on a CPU."""
        if self.device != "CPU":  # on the CPU a call returns when its graph has run
            ms.runtime.synchronize()
