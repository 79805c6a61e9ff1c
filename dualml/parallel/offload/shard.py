"""Optimizer of a model's units, one after the other, whose state or weights are offloaded."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

import numpy as np

from dualml.algorithms.communicator import Communicator
from dualml.backend import Array, TrainingSpec
from dualml.backend.capability import Tensor
from dualml.backend.shard import FlatParameterStorage, OptimizerShard, Slots
from dualml.parallel.offload.records import UnitRecords
from dualml.parallel.offload.traffic import Meter


class OffloadedShard:
    """An optimizer shard with offloaded state or weights; see
    `dualml.backend.shard.OptimizerShard`.

    Every unit has its own optimizer. Offloaded state is copied into one buffer on the device, which
    holds the state of one unit at a time: one vector per state key, of which a unit uses the first
    elements.

    Args:
        weights: tensor of each unit's weights on the device; several units may share one.
        records: records of what is offloaded, by the names ``state`` and ``weights``. A state
            record has the state vectors one after the other.
        dtype: dtype of the state.
    """

    def __init__(
        self,
        recipe: TrainingSpec,
        flat: FlatParameterStorage,
        comm: Communicator,
        weights: Sequence[Tensor],
        meter: Meter,
        records: Mapping[str, UnitRecords],
        dtype: str,
    ) -> None:
        self.flat, self.meter, self.weights = flat, meter, weights
        self.state_records, self.weight_records = records.get("state"), records.get("weights")
        self.state_buffers, slots = list[Tensor](), recipe.rule.state_keys
        if self.state_records is not None:
            most = max(map(len, weights))
            self.state_buffers = [comm.tensor(np.zeros(most, dtype)) for _ in slots]
        self.state_buffer_bytes = sum(map(comm.nbytes, self.state_buffers))
        self.state_slices, self.shards = list[list[Tensor]](), list[OptimizerShard]()
        for vector in weights:
            places = [comm.slice(room, 0, len(vector)) for room in self.state_buffers]
            own = {slot: [place] for slot, place in zip(slots, places, strict=bool(places))}
            self.shards.append(flat.make_optimizer_shard(recipe, [vector], own or None))
            self.state_slices.append(places)

    # --- in and out -------------------------------------------------------------------------------

    def offloaded_records(self, number: int) -> list[tuple[UnitRecords, list[Tensor]]]:
        """Return, for each kind that is offloaded (state, then weights), its records and the unit's
        tensors on the device."""
        every = [
            (self.state_records, self.state_slices[number]),
            (self.weight_records, [self.weights[number]]),
        ]
        return [(records, places) for records, places in every if records is not None]

    @contextmanager
    def on_device(self, number: int) -> Iterator[None]:
        """Copy the offloaded state and weights of unit ``number`` to the device for the context,
        and back to their records at its end, unless it raises; what is not offloaded stays on the
        device."""
        own = [(r, places, r.acquire(number)) for r, places in self.offloaded_records(number)]
        for _, places, record in own:
            self._copy_to_device(places, record)
        yield
        for records, places, record in own:
            self._copy_to_host(places, record)
            records.release()

    def copy_weights_to_device(self, number: int) -> None:
        """Copy the offloaded weights of a unit from their record to the device."""
        assert self.weight_records is not None
        self._copy_to_device([self.weights[number]], self.weight_records.acquire(number))

    def _copy_to_device(self, places: Sequence[Tensor], record: Array) -> None:
        """Copy equal parts of the host array ``record`` into the device tensors ``places``, and
        count bytes and time."""
        with self.meter.current.timed("copy_ns"):
            for place, part in zip(places, np.split(record, len(places)), strict=True):
                self.flat.copy_from_host(place, part)
        self.meter.current.to_device += record.nbytes

    def _copy_to_host(self, places: Sequence[Tensor], record: Array) -> None:
        """Copy the device tensors ``places`` into equal parts of the host array ``record``, and
        count bytes and time."""
        with self.meter.current.timed("copy_ns"):
            for place, part in zip(places, np.split(record, len(places)), strict=True):
                self.flat.copy_to_host(place, part)
        self.meter.current.to_host += record.nbytes

    # --- as an optimizer --------------------------------------------------------------------------

    def finite(self, gradients: Sequence[Tensor]) -> bool:
        """Return whether this rank's gradients, one tensor per unit, are finite."""
        return all(s.finite([g]) for s, g in zip(self.shards, gradients, strict=True))

    def update(self, gradients: Sequence[Tensor], step: int, made: int, scale: float) -> None:
        """Update the units one after the other, from ``gradients`` (one tensor per unit) divided by
        ``scale``; each unit's offloaded values are on the device only meanwhile. ``step`` gives the
        learning rate, ``made`` is the number of this update among those that were not skipped."""
        for records in (self.state_records, self.weight_records):
            if records is not None:
                records.set_acquire_order(range(len(self.shards)))
        for number, (shard, gradient) in enumerate(zip(self.shards, gradients, strict=True)):
            with self.on_device(number):
                shard.update([gradient], step, made, scale)

    def state(self) -> Slots:
        """Return state key → one array per unit; offloaded state is copied through the device
        buffer, one unit at a time."""
        slots: Slots = {}
        for number, shard in enumerate(self.shards):
            if self.state_records is not None:
                self._copy_to_device(self.state_slices[number], self.state_records.acquire(number))
            for slot, (part,) in shard.state().items():
                slots.setdefault(slot, []).append(part)
        return slots

    def load(self, state: Slots, made: int) -> None:
        """Replace the state of all units as after ``made`` applied updates, and write offloaded
        state to its records."""
        for number, shard in enumerate(self.shards):
            shard.load({slot: [parts[number]] for slot, parts in state.items()}, made)
            if self.state_records is not None:
                self._copy_to_host(self.state_slices[number], self.state_records.acquire(number))
                self.state_records.release()

    def state_bytes(self) -> int:
        """Return the bytes of state on the device, without the state buffer: 0 if the state is
        offloaded."""
        return 0 if self.state_records is not None else sum(s.state_bytes() for s in self.shards)
