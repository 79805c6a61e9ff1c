"""The optimizer of a model's units, one after the other, whose numbers come from elsewhere."""

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
    """See `dualml.backend.shard.Shard`.

    Every unit has an optimizer of its own. Those whose state is elsewhere have it in one place on
    the device, the room, which holds that of one unit at a time: of each slot a vector, of which a
    unit has the first elements.

    Args:
        weights: the place of each unit's; that of several may be the same.
        state, kept: records of state and weights; None where they stay on the device. A record of
            state has the slots one after the other.
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
        """Records of a unit, and its places on the device."""
        every = [
            (self.state_records, self.places[number]),
            (self.weight_records, [self.weights[number]]),
        ]
        return [(records, places) for records, places in every if records is not None]

    @contextmanager
    def there(self, number: int) -> Iterator[None]:
        """Inside, state and weights of a unit are on the device; what they are then is kept."""
        own = [(r, places, r.take(number)) for r, places in self.elsewhere(number)]
        for _, places, record in own:
            self._put(places, record)
        yield
        for records, places, record in own:
            self._get(places, record)
            records.give()

    def bring_weights(self, number: int) -> None:
        """To their place, to be computed with."""
        assert self.weight_records is not None
        self._put([self.weights[number]], self.weight_records.take(number))

    def _put(self, places: Sequence[Tensor], record: Array) -> None:
        with self.meter.now.timed("copy_ns"):
            for place, part in zip(places, np.split(record, len(places)), strict=True):
                self.flat.put(place, part)
        self.meter.now.to_device += record.nbytes

    def _get(self, places: Sequence[Tensor], record: Array) -> None:
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
        """On the device, without the room."""
        return 0 if self.state_records is not None else sum(s.held() for s in self.shards)
