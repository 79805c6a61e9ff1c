"""Strategy of ranks that share a model: each holds a part, and whole batches pass through all."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from dualml.algorithms.communicator import Communicator
from dualml.backend import Array, Arrays, Backend
from dualml.common.machine import peak_memory_mb
from dualml.parallel.aggregation.straggler import Straggler
from dualml.parallel.copies import WeightCopies
from dualml.parallel.split.placed_executor import PlacedExecutor
from dualml.parallel.split.plan import SplitPlan
from dualml.parallel.split.remote import SplitModel
from dualml.parallel.split.traffic import FLOAT, total_sent_bytes
from dualml.parallel.split.training import SplitTraining
from dualml.parallel.trainer import Trainer


class SplitTrainer(Trainer):
    """Trains a split model, whose executor makes whole updates together with the other ranks.

    Args:
        lower: whether the model trains in low precision.
        data: bytes of samples and of labels that this rank has read, as a pair.
    """

    comm: Communicator
    model: SplitModel
    scored_by = "scorer"

    def __init__(
        self,
        backend: Backend,
        model: SplitModel,
        comm: Communicator,
        slow: Straggler | None = None,
        seed: int = 0,
        *,
        lower: bool = False,
        data: tuple[int, int] = (0, 0),
    ) -> None:
        super().__init__(backend, model, comm, slow, seed)
        self.executor, self.plan = model.executor, model.executor.plan
        self.executor.slow, self.executor.seed = slow, seed
        self.timeline, self.scorer = self.executor.timeline, self.plan.scorer
        self.lower, self.bytes_read = lower, data
        self.memory: dict[str, Any] = {}
        self.promise = "parts" if has_copies(self.plan) else "stages"

    def mean_losses(self, lazy: Sequence[tuple[Any, float]]) -> Array:
        """Return the mean losses of the batches, one per update, on every rank, from the pairs that
        `step` returned; all ranks call it."""
        return self.model.materialize_losses([losses for losses, _ in lazy])

    def local_losses(self, lazy: tuple[Any, float]) -> Arrays:
        """Return the losses of one update's micro-batches on this rank, from the pair that `step`
        returned, under the key ``micro-batches``; empty on a rank that computes none."""
        losses = self.model.micro_batch_losses(lazy[0])
        return {} if losses is None else {"micro-batches": losses}

    def begin_warm_up(self) -> None:
        """Start to count what is saved for backward passes."""
        self.model.count_saved_bytes(True)

    def begin_training(self) -> None:
        """Gather the memory report of every rank, stop counting saved bytes, clear the timeline,
        and wait for all ranks."""
        executor, held = self.executor, self.plan.rank_stages(self.rank)[1].values()
        self.model.count_saved_bytes(False)
        size = sum(math.prod(p.local_shape) for p in held) * np.dtype(self.backend.dtype).itemsize
        own = {
            "live": executor.max_in_flight,
            "held_bytes": executor.max_saved_bytes,
            "parameter_bytes": size,
            "peak_memory_mb": peak_memory_mb() or 0.0,
            "sample_bytes": self.bytes_read[0],
            "label_bytes": self.bytes_read[1],
        }
        rows = self.comm.all_gather(self.comm.tensor(np.array(list(own.values()), np.float64)))
        ranks = [dict(zip(own, self.comm.numpy(row).tolist(), strict=True)) for row in rows]
        self.memory = {"memory": ranks}
        executor.timeline.clear()
        super().begin_training()

    def begin_draws(self) -> None:
        """Prepare the perturbed runs (*draws*) of the rounding envelope: remove the straggler,
        which only waits, from trainer and executor, and wait for all ranks."""
        self.executor.slow = None
        super().begin_draws()

    def interchangeable_groups(self, batch: Array) -> list[Array]:
        """Return the groups of samples within which order changes only rounding: the whole batch;
        for a stateful model each micro-batch, because a rank holds the states of its own
        streams."""
        if not self.plan.spec.stateful:
            return [batch]
        mesh, micro = self.plan.mesh, self.plan.micro_batches
        return [p for d in np.array_split(batch, mesh.data) for p in np.array_split(d, micro)]

    def copies(self) -> WeightCopies | None:
        """Return this rank's part of each parameter by name and slice, so that equal slices are
        compared; for remote procedure calls all weights on the driver, an empty mapping elsewhere
        (all ranks then call it)."""
        if isinstance(self.model, SplitTraining):
            pieces = self.plan.rank_stages(self.rank)[1]
            own = self.model.stage.weights()
            return WeightCopies({f"{name} ({pieces[name]})": w for name, w in own.items()})
        weights = self.model.weights()
        return WeightCopies(weights if self.rank == self.plan.driver else {})

    def expected_sent_bytes(
        self, shapes: Mapping[str, tuple[int, ...]], first: int, last: int, samples: int
    ) -> float | None:
        """Return the bytes per update that all ranks together send by the split plan, for the mean
        batch size of the updates ``first`` … ``last``, which have ``samples`` samples together."""
        batch, width = samples // (last - first + 1), np.dtype(self.backend.dtype).itemsize
        return total_sent_bytes(self.plan, batch, lower=self.lower) * width / FLOAT

    def summary(self) -> dict[str, Any]:
        """Return the ranks' memory reports under ``memory`` (after `begin_training`), and under
        ``how`` how messages, device transfers or remote calls are executed."""
        return {"how": self.describe_messages(), **self.memory}

    def describe_messages(self) -> dict[str, str]:
        """Return, by kind of communication, how messages, device transfers or remote calls are
        executed, as text."""
        plan = self.plan
        if plan.engine == "rpc":
            return {"calls": f"native: {self.model.calls}"}
        if plan.engine == "devices":
            return self.describe_transfers()
        uses = ["isend and irecv"] if len(plan.stages) > 1 or plan.shared == "context" else []
        how = {name: str(self.comm.implementation_of("exchange")) for name in uses}
        if plan.mesh.tensor > 1 or plan.same_parameters() or plan.tied_groups():
            how["all_reduce"] = str(self.comm.implementation_of("all_reduce"))
        if plan.shared == "sequence":
            how |= {
                name: str(self.comm.implementation_of(name))
                for name in ("all_gather", "reduce_scatter")
            }
        return how

    def describe_transfers(self) -> dict[str, str]:
        """Return how values move between devices, and which component sums gradients across
        processes."""
        assert isinstance(self.executor, PlacedExecutor)
        stage = self.executor.placed
        how = {"transfers": f"native: {stage.transfers_by}"}
        if stage.sums_by:
            how["gradients"] = f"native: {stage.sums_by}"
        elif self.size > 1:
            how["all_reduce"] = str(self.comm.implementation_of("all_reduce"))
        return how


def has_copies(plan: SplitPlan) -> bool:
    """Return whether several ranks hold the same part of some parameter; False for remote procedure
    calls."""
    held = Counter(
        (name, str(piece))
        for rank in range(plan.world_size)
        for name, piece in plan.rank_stages(rank)[1].items()
    )
    return plan.engine != "rpc" and max(held.values(), default=1) > 1
