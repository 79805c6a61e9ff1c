"""Engine-driven training: the interface of a method in one process, and its coordination over
ranks."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from dualml.algorithms.communicator import Communicator
from dualml.backend import (
    ActivationCapture,
    Array,
    Arrays,
    Backend,
    BatchTrace,
    MemoryReport,
    MemoryUsage,
    Training,
    TrainingSpec,
)
from dualml.backend.capability import Capability
from dualml.common.errors import TrialError
from dualml.common.json_types import JsonMapping
from dualml.experiment.methods.skips import SkippedUpdates
from dualml.parallel.aggregation.parallel import gather_mean_losses


class MethodTraining(Training, ActivationCapture):
    """A training method in one process.

    Attributes:
        sharded: whether weights or state are sharded over the ranks: `gather` collects the weights,
            the state is not visible.
        is_resumable: whether weights and optimizer state are the whole state of an update, so that
            a trial can be resumed.
        processes: number of processes that the engine reports.
        groups: kind of group → ranks of each group, if the engine forms groups.
        prepared: samples of a full global batch, if the engine's own loader distributes them in
            `steps_from_loader`; else 0.
        skips: updates that the engine has skipped; engines that may skip updates report them in
            `state`.
    """

    sharded: bool = False
    is_resumable: bool = True
    processes: int = 1
    groups: Mapping[str, Sequence[Sequence[int]]] = {}
    prepared: int = 0
    skips: SkippedUpdates

    def check_processes(self, asked: int) -> None:
        """Check that the engine trains in as many processes as the trial has ranks.

        Raises:
            TrialError: the engine is in another group than the ranks of the trial.
        """
        if self.processes != asked:
            raise TrialError(
                f"the engine trains in {format_processes(self.processes)}; the trial has "
                f"{format_processes(asked)}: "
                "was it started by a launcher of another job, or with its WORLD_SIZE?"
            )

    def engine_evaluate(self, x: Array, y: Array) -> Array | None:
        """Evaluate by the engine's own means, if it has any.

        Returns:
            One row of label, predicted class and loss for each sample that any rank tested; None:
            the engine leaves evaluation to dualml.
        """
        return None

    def close(self) -> None:
        """Release what the engine holds outside of the device."""

    @abstractmethod
    def step(self, batch: Array, step: int, weight: float = 1.0) -> Any:
        """Make one update and return the lazy loss.

        Args:
            weight: weight of this rank's mean loss in the mean over ranks; 1 if all ranks have
                equally many samples.
        """

    def steps_from_loader(
        self, batches: Sequence[Array], first: int
    ) -> Iterator[tuple[Array, Any]]:
        """Make an update for each of these global batches, the first of them number ``first``, on
        this rank's part as the engine's loader gives it. Only methods with ``prepared`` have it.

        Returns:
            For each batch, this rank's part as positions (n,), and the lazy loss.
        """
        raise NotImplementedError

    def gather(self) -> None:
        """Gather the current weights for `weights` and `evaluate`; all ranks call it. Unless a
        method overrides it, it does nothing."""

    def trace(self, batch: Array, probe: Array) -> BatchTrace:
        """Return a trace of the forward pass alone: engines do not expose gradients, so these are
        empty and the loss is 0; real losses and weights are compared at every update."""
        return BatchTrace(*self.capture_forward(batch, probe), loss=0.0, gradients={})


def format_processes(processes: int) -> str:
    """Return a number of processes as text, such as ``1 process`` or ``4 processes``."""
    return "1 process" if processes == 1 else f"{processes} processes"


class EngineSupport(Capability):
    """Capability of a backend to train by methods."""

    description = "train by the methods of engines"

    @abstractmethod
    def method(
        self,
        name: str,
        recipe: TrainingSpec,
        comm: Communicator | None,
        config: JsonMapping | None = None,
    ) -> MethodTraining:
        """Make the method of this name, ready to train; ``comm`` None: in one process.

        Args:
            config: the engine's own configuration, for methods that take one.

        Raises:
            Unsupported: there is no such method, it does not run here, or its engine is missing.
        """


class EngineDataParallel(Training, ActivationCapture, MemoryReport):
    """A training method on one of several ranks, each of which trains on its part of the batch.

    Raises:
        TrialError: the engine is in another group than the ranks of the trial.
    """

    def __init__(self, backend: Backend, training: MethodTraining, comm: Communicator) -> None:
        self.backend, self.training, self.comm = backend, training, comm
        self.step_count, self.gathered = 0, -1
        training.check_processes(comm.size)

    def check_parts(self, sizes: Sequence[int], step: int) -> None:
        """Check that every rank has samples in an update.

        Raises:
            TrialError: a rank has no samples in an update.
        """
        if not min(sizes):
            raise TrialError(
                f"update {step} has {sum(sizes)} samples for {self.comm.size} ranks: one "
                "has none, and an engine needs some of every rank; use another batch_size"
            )

    def step(self, batch: Array | Sequence[Array], step: int) -> tuple[Any, float]:
        """Make one update with ``batch``, a list of one part per rank; return this rank's lazy loss
        and its share of the global batch, from 0 to 1. All ranks call it."""
        part: Array = batch[self.comm.rank]
        share = len(part) / sum(map(len, batch))
        self.check_parts([len(each) for each in batch], step)
        self.step_count = step
        return self.training.step(part, step, share * self.comm.size), share

    def materialize_losses(self, lazy: Sequence[tuple[Any, float]]) -> Array:
        """Return the mean loss of each global batch, gathered from the pairs of lazy loss and share
        that `step` returned on every rank. All ranks call it."""
        return gather_mean_losses(self.backend, self.comm, lazy)

    def trace(self, batch: Array | Sequence[Array], probe: Array) -> BatchTrace:
        """Return what `capture_forward` does as a trace; its gradients are empty and its loss is 0,
        because engines do not expose them. All ranks call it."""
        return BatchTrace(*self.capture_forward(batch, probe), loss=0.0, gradients={})

    def gather(self) -> None:
        """Gather the weights after the last update, unless that has been done, so that one rank
        alone may ask for them later. All ranks call it."""
        if self.gathered != self.step_count:
            self.training.gather()
            self.gathered = self.step_count

    def capture_forward(self, batch: Array | Sequence[Array], probe: Array) -> tuple[str, Arrays]:
        """Gather the weights, then return the SHA-256 of the whole batch of all ranks, which is not
        run, and layer name → output for the samples ``probe``, in evaluation mode. All ranks call
        it."""
        self.gather()
        whole = batch if isinstance(batch, np.ndarray) else np.concatenate(batch)
        return self.training.capture_forward(whole, probe)

    def fetch_batch(self, batch: Array | Sequence[Array]) -> tuple[Array, Array]:
        """Return samples and labels of this rank's part of the batch, as the framework receives
        them."""
        return self.training.fetch_batch(batch[self.comm.rank])

    def evaluate(self, x: Array, y: Array) -> tuple[float, Array]:
        """Return mean loss and predictions of the samples ``x`` by the engine's model on this rank;
        if weights are sharded, all ranks call `gather` first."""
        return self.training.evaluate(x, y)

    def weights(self) -> Arrays:
        """Return the whole weights, gathered from the ranks at the first call after an update,
        which all ranks make."""
        self.gather()
        return self.training.weights()

    def state(self) -> dict[str, Arrays]:
        """Return the optimizer state that the engine shows on this rank."""
        return self.training.state()

    def load(self, weights: Mapping[str, Array], state: Mapping[str, Arrays], step: int) -> None:
        """Load weights and optimizer state into the engine, as they are after update ``step``."""
        self.training.load(weights, state, step)
        self.step_count, self.gathered = step, -1

    def measure_memory(self, batch: Any = None) -> MemoryUsage:
        """Return the memory of this rank. All ranks call it: engines report memory during an
        update."""
        part = None if batch is None else batch[self.comm.rank]
        return self.training.require_capability(MemoryReport).measure_memory(part)

    def transform_weights(self, fn: Callable[[Arrays], Mapping[str, Array]]) -> None:
        """Replace the engine's weights by ``fn(weights)``; everything else stays."""
        self.training.transform_weights(fn)
