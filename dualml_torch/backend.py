"""The PyTorch backend: one device in one process."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch

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
from dualml.common.clock import EVENTS, WALL
from dualml.common.errors import Unsupported
from dualml.experiment.methods.engine import EngineSupport, MethodTraining
from dualml.parallel.split.plan import SplitPlan
from dualml.parallel.split.remote import SplitModel
from dualml_torch.algorithms.memory import measure_peak_memory
from dualml_torch.common.clock import start_events
from dualml_torch.common.environment import environment, resolve_device
from dualml_torch.parallel.devices import TorchPlacedStage
from dualml_torch.parallel.parallel import TorchParallel
from dualml_torch.parallel.split import TorchStage


class TorchBackend(
    Backend,
    ProcessGroups,
    PipelineStages,
    DevicePlacement,
    RemoteProcedureCalls,
    EngineSupport,
    PeakMemory,
):
    """PyTorch implementation of `dualml.backend.Backend`.

    Args:
        device: ``auto``, ``cpu``, ``cuda``, ``cuda:i`` or ``gpu``.
        threads: threads inside one operator; 0 leaves PyTorch's choice.

    Raises:
        UserError, Unsupported: a device that does not exist, or that PyTorch does not know.
    """

    name = "torch"
    dtype = "float32"

    def __init__(self, device: str = "auto", threads: int = 0) -> None:
        self.device = torch.device(resolve_device(device))
        self.clock = EVENTS if self.device.type == "cuda" else WALL
        if threads:
            torch.set_num_threads(threads)
        self.last_training: TorchParallel | None = None  # the latest; its kernel choice is recorded
        torch.manual_seed(0)  # nothing here uses it; a stray draw would at least repeat
        # The flag of use_deterministic_algorithms(True), which would also import the compiler: a
        # second for every rank. What compiles here sets the compiler's own (optim/compiled.py).
        torch.set_deterministic_debug_mode("error")
        # It would fill every new tensor with NaN first; nothing here reads what it did not write.
        torch.utils.deterministic.fill_uninitialized_memory = False

    def environment(self) -> dict[str, str]:
        """Return facts about PyTorch, the device and this process as text, with the kernel choice
        of the latest training that `training` made, if it has one."""
        facts = environment(str(self.device), torch.get_num_threads())
        choice = self.last_training.choice if self.last_training else None
        return facts | (choice.environment_facts() if choice else {})

    def training(self, recipe: TrainingSpec) -> TorchParallel:
        """Make a training on this device and remember it, because `environment` reports its kernel
        choice."""
        self.last_training = TorchParallel(recipe, self.device)
        return self.last_training

    def stage(
        self, segments: Sequence[Segment], recipe: TrainingSpec, *, first: bool, last: bool
    ) -> TorchStage:
        """Make the stage of these segments on this backend's device; ``last`` is ignored."""
        return TorchStage(segments, recipe, self.device, first=first)

    def placed_stage(
        self,
        segments: Sequence[Segment],
        recipe: TrainingSpec,
        devices: Sequence[str],
        comm: Communicator,
    ) -> TorchPlacedStage:
        """Make a stage whose segments lie on the named devices, one name per segment, see
        `TorchPlacedStage`; all processes of ``comm`` call it. This backend's own device is not
        used."""
        return TorchPlacedStage(segments, recipe, devices, comm)

    def method(
        self,
        name: str,
        recipe: TrainingSpec,
        comm: Communicator | None,
        config: Mapping[str, Any] | None = None,
    ) -> MethodTraining:
        """Make the training method ``name`` on this device; all ranks of ``comm``, None for a
        single process, call it. ``config`` is the user's own configuration of the method's
        engine."""
        from dualml_torch.experiment.methods import make_method

        return make_method(name, recipe, self.device, comm, config)

    def rpc(self, plan: SplitPlan, comm: Communicator, recipe: TrainingSpec) -> SplitModel:
        """Make this rank's view of a model split by RPC; every rank of ``comm`` calls it.
        Unsupported: a PyTorch built without RPC, or see `start_agent`."""
        import torch.distributed.rpc

        if not torch.distributed.rpc.is_available():
            raise Unsupported(
                'this PyTorch is built without torch.distributed.rpc; engine = "messages" runs the '
                "same split"
            )
        from dualml_torch.parallel.rpc import RpcTraining  # seconds, which only these trials spend

        return RpcTraining(self, plan, comm, recipe)

    def materialize_losses(self, losses: Sequence[Any]) -> Array:
        """Return each batch's mean loss, float64, from its pairs of a chunk's mean loss and the
        chunk's share of the batch; all are copied to the host at once. No batches give an empty
        array."""
        if not losses:
            return np.zeros(0)
        values = torch.stack([loss for parts in losses for loss, _ in parts]).double().cpu().numpy()
        return combine_chunk_losses(values, losses)

    def connect(self, place: RankContext) -> Communicator:
        """Join the other ranks and return the communicator, staged in host memory if ``place`` asks
        for it; this backend's device becomes the rank's own."""
        from dualml_torch.algorithms.communicator import connect

        if place.host_staged:
            from dualml_torch.parallel.host_staged import connect_staged

            staged = connect_staged(place, self.device)
            self.device = staged.compute
            return staged
        comm = connect(place, self.device)
        self.device = torch.device(comm.device)  # with several ranks each has a GPU of its own
        return comm

    def measure_peak(self, work: Callable[[], object]) -> int | None:
        """Run ``work`` and return the allocator's peak bytes on this GPU, including what was
        allocated before; None, without running it, on a CPU."""
        return measure_peak_memory(self.device, work)

    def stopwatch(self) -> Callable[[], float]:
        """Start a stopwatch and return a function that gives the seconds since; on a GPU by CUDA
        events, see `start_events`."""
        return start_events(self.device) if self.clock == EVENTS else super().stopwatch()

    def synchronize(self) -> None:
        """Wait for this backend's GPU; do nothing on a CPU."""
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)


def combine_chunk_losses(values: Array, losses: Sequence[Any]) -> Array:
    """Return the mean loss of each batch, in order: the sum of its chunks' mean losses times their
    shares. ``values`` are the mean losses of all chunks; of the pairs in ``losses``, batch by
    batch, only the shares are used."""
    shares = np.array([share for parts in losses for _, share in parts])
    starts = np.cumsum([0] + [len(parts) for parts in losses[:-1]])
    return np.add.reduceat(values * shares, starts)
