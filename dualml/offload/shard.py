"""Optimizer of a model's units, one after the other, whose state or weights are offloaded."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np

from dualml.backend import Array, Recipe
from dualml.backend.ability import Tensor
from dualml.backend.shard import Shard, Shardable, Slots
from dualml.communicator import Communicator
from dualml.offload.records import Records
from dualml.offload.traffic import Meter


class OffloadedShard:
    """An optimizer shard with offloaded state or weights; see
    `dualml.backend.shard.OptimizerShard`.

    Every unit has its own optimizer. Offloaded state is copied into one buffer on the device, which
    holds the state of one unit at a time: one vector per state key, of which a unit uses the first
    elements.

    Args:
        weights: tensor of each unit's weights on the device; several units may share one.
        state, weight_records: records of state and weights; None if they stay on the device. A
            state record has the state vectors one after the other.
    """

    def __init__(
        self,
        recipe: Recipe,
        flat: Shardable,
        comm: Communicator,
        weights: Sequence[Tensor],
        meter: Meter,
        state: Records | None,
        kept: Records | None,
        dtype: str,
    ) -> None:
        self.flat, self.meter, self.weights = flat, meter, weights
        self.state_records, self.weight_records = state, kept
        self.rooms, slots = list[Tensor](), recipe.rule.slots
        if state is not None:
            most = max(map(len, weights))
            self.rooms = [comm.tensor(np.zeros(most, dtype)) for _ in slots]
        self.room = sum(map(comm.nbytes, self.rooms))
        self.places, self.shards = list[list[Tensor]](), list[Shard]()
        for vector in weights:
            places = [comm.slice(room, 0, len(vector)) for room in self.rooms]
            own = {slot: [place] for slot, place in zip(slots, places, strict=bool(places))}
            self.shards.append(flat.shard(recipe, [vector], own or None))
            self.places.append(places)

    # --- in and out -------------------------------------------------------------------------------

    def elsewhere(self, number: int) -> list[tuple[Records, list[Tensor]]]:
        """Return the records of a unit with their tensors on the device."""
        every = [
            (self.state_records, self.places[number]),
            (self.weight_records, [self.weights[number]]),
        ]
        return [(records, places) for records, places in every if records is not None]

    @contextmanager
    def there(self, number: int) -> Iterator[None]:
        """Copy state and weights of a unit to the device for the context, and back at its end."""
        own = [(r, places, r.take(number)) for r, places in self.elsewhere(number)]
        for _, places, record in own:
            self._put(places, record)
        yield
        for records, places, record in own:
            self._get(places, record)
            records.give()

    def bring_weights(self, number: int) -> None:
        """Copy the weights of a unit to the device."""
        assert self.weight_records is not None
        self._put([self.weights[number]], self.weight_records.take(number))

    def _put(self, places: Sequence[Tensor], record: Array) -> None:
        """Copy a record to its tensors on the device."""
        with self.meter.now.timed("copy_ns"):
            for place, part in zip(places, np.split(record, len(places)), strict=True):
                self.flat.put(place, part)
        self.meter.now.to_device += record.nbytes

    def _get(self, places: Sequence[Tensor], record: Array) -> None:
        """Copy tensors on the device to their record."""
        with self.meter.now.timed("copy_ns"):
            for place, part in zip(places, np.split(record, len(places)), strict=True):
                self.flat.get(place, part)
        self.meter.now.to_host += record.nbytes

    # --- as an optimizer --------------------------------------------------------------------------

    def finite(self, gradients: Sequence[Tensor]) -> bool:
        return all(s.finite([g]) for s, g in zip(self.shards, gradients, strict=True))

    def update(self, gradients: Sequence[Tensor], step: int, made: int, scale: float) -> None:
        for records in (self.state_records, self.weight_records):
            if records is not None:
                records.plan(range(len(self.shards)))
        for number, (shard, gradient) in enumerate(zip(self.shards, gradients, strict=True)):
            with self.there(number):
                shard.update([gradient], step, made, scale)

    def state(self) -> Slots:
        slots: Slots = {}
        for number, shard in enumerate(self.shards):
            if self.state_records is not None:
                self._put(self.places[number], self.state_records.take(number))
            for slot, (part,) in shard.state().items():
                slots.setdefault(slot, []).append(part)
        return slots

    def load(self, state: Slots, made: int) -> None:
        for number, shard in enumerate(self.shards):
            shard.load({slot: [parts[number]] for slot, parts in state.items()}, made)
            if self.state_records is not None:
                self._get(self.places[number], self.state_records.take(number))
                self.state_records.give()

    def held(self) -> int:
        """Return the bytes of state on the device, without the state buffer."""
        return 0 if self.state_records is not None else sum(s.held() for s in self.shards)
