"""A model whose optimizer state, and optionally weights, are kept outside the device, as a
`Training`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import numpy as np

from dualml.backend import Array, Arrays, Backend, Memory, Recipe, Trace
from dualml.backend.ability import Tensor
from dualml.backend.shard import Shard
from dualml.communicator import Communicator
from dualml.offload.disk import DiskRecords
from dualml.offload.forms import records
from dualml.offload.records import HostRecords, Records
from dualml.offload.settings import Offload
from dualml.offload.shard import OffloadedShard
from dualml.offload.traffic import Meter, Traffic
from dualml.zero.model import ShardedModel
from dualml.zero.settings import Sharding


class OffloadedModel(ShardedModel):
    """A `ShardedModel` that offloads state or weights to host memory or disk; also for a single
    rank.

    Weights are copied unit by unit into the memory into which stage 3 gathers them, for a pass and
    for the update. State is copied into a buffer on the device that all units use in turn.

    Args:
        folder: folder of the files on disk.
    """

    def __init__(
        self,
        backend: Backend,
        recipe: Recipe,
        comm: Communicator,
        sharding: Sharding,
        offload: Offload,
        folder: Path,
    ) -> None:
        self.offload, self.folder, self.meter = offload, folder, Meter()
        disk = "disk" in (offload.state, offload.weights)
        self.thread = ThreadPoolExecutor(1, "offload") if disk and offload.overlap else None
        self.kept: dict[str, Records] = {}
        try:
            super().__init__(backend, recipe, comm, sharding)
        except BaseException:
            self.close()
            raise

    def own_weights(self) -> list[Tensor]:
        if not self.offload.away("weights"):
            return super().own_weights()
        self.kept["weights"] = self.records("weights")
        return [self.moves.own(vector) for vector in self.weights_of]

    def optimizer(self) -> Shard:
        state = self.records("state") if self.offload.away("state") else None
        if state is not None:
            self.kept["state"] = state
        self.optimizing = OffloadedShard(
            self.recipe, self.flat, self.comm, self.own, self.meter,
            state, self.kept.get("weights"), self.backend.dtype,
        )  # fmt: skip
        return self.optimizing

    def records(self, kind: Literal["state", "weights"]) -> Records:
        """Make the records of a kind, in host memory or on disk."""
        lengths = records(self.units, self.comm.size, len(self.recipe.rule.slots))[kind]
        if self.offload.place(kind) == "host":
            return HostRecords(lengths, self.backend.dtype)
        return DiskRecords(self.folder, lengths, self.backend.dtype, self.meter, self.thread)

    def close(self) -> None:
        """Release files, memory and the thread; may be called again."""
        hung = any(own.hung for own in self.kept.values())
        if self.thread is not None:
            self.thread.shutdown(wait=not hung, cancel_futures=True)
        if not hung:  # otherwise the thread may still use its file, which ends with the process
            for own in self.kept.values():
                own.close()

    # --- one update -------------------------------------------------------------------------------

    def run(self, part: Array, step: int, factor: float) -> Any:
        self.meter.begin()
        return super().run(part, step, factor)

    def round(self, piece: Array, step: int, factor: float, first: bool) -> Any:
        self.meter.now.rounds += 1
        numbers = range(len(self.segments))
        self.announce([*numbers, *reversed(numbers)])
        return super().round(piece, step, factor, first)

    def announce(self, order: Sequence[int]) -> None:
        """Prefetch the weights of these units in this order, except for resident ones."""
        if "weights" not in self.kept:
            return
        there, fetched = dict(self.there), list[int]()
        for number in order:
            room = number % self.sharding.rooms
            if there.get(room) != number:
                there[room] = number
                fetched.append(number)
        self.kept["weights"].plan(fetched)

    def gather(self, number: int) -> None:
        if "weights" in self.kept:
            self.optimizing.bring_weights(number)
        super().gather(number)

    def infer(self, values: Any) -> tuple[Tensor, dict[str, Tensor]]:
        self.announce(range(len(self.segments)))
        return super().infer(values)

    def update(self, step: int) -> None:
        before = self.made(step)
        super().update(step)
        made = self.made(step) == before
        if not made:  # no read has waited for the pending writes
            self.finish_writing()
        self.meter.end(made)

    def finish_writing(self) -> None:
        """Wait until all pending writes are done."""
        for own in self.kept.values():
            own.settle()

    # --- what it holds ----------------------------------------------------------------------------

    def own_part(self, number: int) -> Array:
        if "weights" not in self.kept:
            return super().own_part(number)
        return self.kept["weights"].take(number).copy()

    def put_own(self, number: int, part: Array) -> None:
        if "weights" not in self.kept:
            super().put_own(number, part)
            return
        own = self.kept["weights"]
        own.take(number)[...] = part
        own.give()

    def load(self, weights: Mapping[str, Array], state: Mapping[str, Arrays], step: int) -> None:
        super().load(weights, state, step)
        self.finish_writing()
        self.meter.clear()

    def memory(self, batch: Array | None = None) -> Memory:
        """Measure the memory on the device; the state buffer of a unit counts as buckets."""
        own = super().memory(batch)
        away = self.offload.away("weights")
        return replace(
            own,
            weights=0 if away else own.weights,
            buckets=own.buckets + self.optimizing.room,
        )

    def elsewhere(self) -> tuple[int, int]:
        """Return the bytes in host memory and on disk."""
        own = self.kept.values()
        return sum(each.host for each in own), sum(each.disk for each in own)

    def traffic(self) -> Traffic:
        """Return the data movement of all updates since the last `load`."""
        self.finish_writing()
        return self.meter.sum()


class OffloadedAlone(OffloadedModel):
    """An `OffloadedModel` on a single rank, which shares neither the batch nor the model."""

    def step(self, batch: Array, step: int) -> Any:
        self.now = step - 1
        loss = self.gradient(batch, 1.0)
        self.combine()
        self.update(step)
        return loss

    def trace(self, batch: Array, probe: Array) -> Trace:
        loss = self.gradient(batch, 1.0)
        self.combine()
        gradients = self.unscaled(self.gradients())
        mean = float(np.sum(self.backend.read([loss])))
        return Trace(*self.look(batch, probe), mean, gradients)
