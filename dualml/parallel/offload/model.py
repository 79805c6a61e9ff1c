"""A model whose optimizer state, and optionally weights, are kept outside the device, as a
`Training`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from dualml.algorithms.communicator import Communicator
from dualml.backend import Array, Arrays, Backend, MemoryUsage, TrainingSpec
from dualml.backend.capability import Tensor
from dualml.backend.shard import OptimizerShard
from dualml.parallel.offload.disk import DiskRecords
from dualml.parallel.offload.estimates import record_lengths
from dualml.parallel.offload.records import HostRecords, UnitRecords
from dualml.parallel.offload.settings import Offload
from dualml.parallel.offload.shard import OffloadedShard
from dualml.parallel.offload.traffic import Meter, OffloadCounters
from dualml.parallel.zero.model import ShardedModel
from dualml.parallel.zero.settings import Sharding


class OffloadedModel(ShardedModel):
    """A `ShardedModel` that offloads state or weights to host memory or disk; also for a single
    rank.

    Weights are copied unit by unit into the memory into which stage 3 gathers them, for a pass and
    for the update. State is copied into a buffer on the device that all units use in turn.

    Args:
        recipe: the model and how it is trained.
        folder: existing folder of the files on disk.
    """

    def __init__(
        self,
        backend: Backend,
        recipe: TrainingSpec,
        comm: Communicator,
        sharding: Sharding,
        offload: Offload,
        folder: Path,
    ) -> None:
        self.offload, self.folder, self.meter = offload, folder, Meter()
        disk = "disk" in (offload.state, offload.weights)
        self.thread = ThreadPoolExecutor(1, "offload") if disk and offload.overlap else None
        self.unit_records: dict[str, UnitRecords] = {}
        try:
            super().__init__(backend, recipe, comm, sharding)
        except BaseException:
            self.close()
            raise

    def make_weight_shards(self) -> list[Tensor]:
        """Return this rank's part of each unit's weights on the device: if weights are offloaded,
        views of the units' shared buffers, with records outside the device."""
        if not self.offload.is_offloaded("weights"):
            return super().make_weight_shards()
        self.unit_records["weights"] = self.make_records("weights")
        return [self.collectives.local_part(vector) for vector in self.unit_weights]

    def make_optimizer(self) -> OptimizerShard:
        """Make the optimizer of this rank's part, with one optimizer per unit, and records for the
        state if it is offloaded."""
        if self.offload.is_offloaded("state"):
            self.unit_records["state"] = self.make_records("state")
        self.offloaded_optimizer = OffloadedShard(
            self.recipe,
            self.shardable,
            self.comm,
            self.weight_shards,
            self.meter,
            self.unit_records,
            self.backend.dtype,
        )
        return self.offloaded_optimizer

    def make_records(self, kind: Literal["state", "weights"]) -> UnitRecords:
        """Make one record per unit, of zeros, for the state or the weights, in host memory or on
        disk as the settings say."""
        lengths = record_lengths(self.units, self.comm.size, len(self.recipe.rule.state_keys))[kind]
        if self.offload.place(kind) == "host":
            return HostRecords(lengths, self.backend.dtype)
        return DiskRecords(self.folder, lengths, self.backend.dtype, self.meter, self.thread)

    def close(self) -> None:
        """Release files, memory and the thread; may be called again. If the disk does not answer,
        the thread and its files are left to end with the process."""
        hung = any(own.hung for own in self.unit_records.values())
        if self.thread is not None:
            self.thread.shutdown(wait=not hung, cancel_futures=True)
        if not hung:  # otherwise the thread may still use its file, which ends with the process
            for own in self.unit_records.values():
                own.close()

    # --- one update -------------------------------------------------------------------------------

    def run(self, part: Array, step: int, factor: float) -> Any:
        """Start to count the traffic of an update and compute its gradients as `ShardedModel.run`
        does; return the lazy loss, None if ``part`` is empty."""
        self.meter.begin_counting()
        return super().run(part, step, factor)

    def micro_step(self, piece: Array, step: int, factor: float, first: bool) -> Any:
        """Run one chunk of samples as `ShardedModel.micro_step` does, after announcing the order in
        which it needs its units: all forward, then all backward."""
        self.meter.current.rounds += 1
        numbers = range(len(self.segments))
        self.plan_prefetch([*numbers, *reversed(numbers)])
        return super().micro_step(piece, step, factor, first)

    def plan_prefetch(self, order: Sequence[int]) -> None:
        """Announce that the weights of the units with these numbers will be needed in this order,
        leaving out those that will still be in their buffer then; do nothing if weights are not
        offloaded."""
        if "weights" not in self.unit_records:
            return
        there, fetched = dict(self.resident), list[int]()
        for number in order:
            slot = number % self.sharding.buffer_slots
            if there.get(slot) != number:
                there[slot] = number
                fetched.append(number)
        self.unit_records["weights"].set_acquire_order(fetched)

    def gather_unit(self, number: int) -> None:
        """All-gather a unit's weights, after copying this rank's part to the device if weights are
        offloaded."""
        if "weights" in self.unit_records:
            self.offloaded_optimizer.copy_weights_to_device(number)
        super().gather_unit(number)

    def infer(self, values: Any) -> tuple[Tensor, dict[str, Tensor]]:
        """Evaluate the model as `ShardedModel.infer` does and return the logits and layer name →
        output; offloaded weights are prefetched in the order of the units."""
        self.plan_prefetch(range(len(self.segments)))
        return super().infer(values)

    def update(self, step: int) -> None:
        """Apply update ``step`` as `ShardedModel.update` does and close the count of its traffic.
        If the loss scaler skipped it, also wait for pending writes."""
        before = self.applied_steps(step)
        super().update(step)
        made = self.applied_steps(step) == before
        if not made:  # no read has waited for the pending writes
            self.flush_writes()
        self.meter.end_update(made)

    def flush_writes(self) -> None:
        """Wait until all pending writes are done."""
        for own in self.unit_records.values():
            own.flush()

    # --- what it holds ----------------------------------------------------------------------------

    def master_part(self, number: int) -> Array:
        """Return a copy of this rank's part of a unit's weights, from its record if they are
        offloaded."""
        if "weights" not in self.unit_records:
            return super().master_part(number)
        return self.unit_records["weights"].acquire(number).copy()

    def set_master_part(self, number: int, part: Array) -> None:
        """Overwrite this rank's part of a unit's weights by ``part``, in its record if they are
        offloaded."""
        if "weights" not in self.unit_records:
            super().set_master_part(number, part)
            return
        own = self.unit_records["weights"]
        own.acquire(number)[...] = part
        own.release()

    def load(self, weights: Mapping[str, Array], state: Mapping[str, Arrays], step: int) -> None:
        """Restore ``weights`` and ``state`` as after update ``step``, wait until what is offloaded
        is written out, and clear the traffic counters."""
        super().load(weights, state, step)
        self.flush_writes()
        self.meter.clear()

    def measure_memory(self, batch: Array | None = None) -> MemoryUsage:
        """Measure the memory on the device: offloaded weights count 0, and the state buffer of one
        unit counts as buckets."""
        own = super().measure_memory(batch)
        away = self.offload.is_offloaded("weights")
        return replace(
            own,
            weights=0 if away else own.weights,
            buckets=own.buckets + self.offloaded_optimizer.state_buffer_bytes,
        )

    def offloaded_bytes(self) -> tuple[int, int]:
        """Return the bytes of this rank's records and buffers, (in host memory, on disk)."""
        own = self.unit_records.values()
        return sum(each.host for each in own), sum(each.disk for each in own)

    def traffic(self) -> OffloadCounters:
        """Return the data movement of all updates since the last `load`, after waiting for pending
        writes."""
        self.flush_writes()
        return self.meter.total_counters()
