"""A model whose numbers the ranks share out, as a `Training`.

Weights, gradients and state go in and come out whole, under their canonical names: checkpoints know
nothing of the ranks. Every rank calls the same methods in the same order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from dualml.backend import (
    Array,
    Arrays,
    Backend,
    Memory,
    Mixed,
    MixedStage,
    Observable,
    Recipe,
    Trace,
    Training,
    Weighable,
    batch_digest,
)
from dualml.backend.ability import Tensor
from dualml.backend.shard import Slots, largest
from dualml.communicator import Communicator, How
from dualml.errors import Unsupported
from dualml.zero.passes import Passes
from dualml.zero.settings import Sharding

TOGETHER = "the ranks of a sharded model work on it together: see dualml.zero.parallel"


class ShardedModel(Passes, Training, Observable, Mixed, Weighable):
    """See `Passes`; updates and looks are made by `dualml.zero.parallel.Zero`."""

    def __init__(
        self, backend: Backend, recipe: Recipe, comm: Communicator, sharding: Sharding
    ) -> None:
        super().__init__(backend, recipe, comm, sharding)
        self.now, self.scaler = 0, recipe.precision.scaler()

    @property
    def held(self) -> How:
        assert isinstance(self.stage, MixedStage)  # see `staged`
        return self.stage.how

    # --- one update -------------------------------------------------------------------------------

    def step(self, batch: Array, step: int) -> Any:
        raise Unsupported(TOGETHER)

    def trace(self, batch: Array, probe: Array) -> Trace:
        raise Unsupported(TOGETHER)

    def gradient(self, part: Array, factor: float) -> Any:
        """`Passes.run` of the next update, with the scaled loss."""
        return self.run(part, self.now + 1, factor * self.scale)

    def update(self, step: int) -> None:
        """Update ``step`` of this rank's part of the weights, which all ranks make or skip."""
        scale, made, sums = self.scale, True, self.handed()
        if self.scaler is None:
            self.shard.update(sums, step, step, 1.0)
        elif made := self.accepts(self.finite(sums)):
            self.shard.update(sums, step, self.made(step), scale)
        if made:
            self.lower_weights()
            self.spread()
        self.now = step

    def finite(self, sums: Sequence[Tensor]) -> bool:
        """Whether all numbers of all ranks' gradients are."""
        own = self.comm.tensor(np.array([self.shard.finite(sums)], np.float32))
        return bool(self.comm.numpy(self.comm.all_reduce(own, "min"))[0])

    # --- looking ----------------------------------------------------------------------------------

    def look(self, batch: Array, probe: Array) -> tuple[str, Arrays]:
        filled = np.resize(probe, max(len(probe), self.stage.infers))
        _, outputs = self.infer((self.stage.samples(filled),))
        seen = {name: self.array(output)[: len(probe)] for name, output in outputs.items()}
        return batch_digest(*self.given(batch)), seen

    def array(self, output: Tensor) -> Array:
        """A tensor on the host; NumPy does not know every type, and float32 has all numbers."""
        if isinstance(self.stage, MixedStage) and self.stage.lower:
            output = self.stage.widened(output)
        array: Array = self.comm.numpy(output)
        return array

    def given(self, batch: Array) -> tuple[Array, Array]:
        return self.recipe.x[batch], self.recipe.y[batch]

    def evaluate(self, x: Array, y: Array) -> tuple[float, Array]:
        """In stage 3 all ranks evaluate at once."""
        filled = np.resize(x, (max(len(x), self.stage.infers), *x.shape[1:]))
        logits, _ = self.infer((self.stage.inputs(filled),))
        return self.stage.score(logits, self.stage.targets(y))

    def memory(self, batch: Array | None = None) -> Memory:
        """`dualml.zero.units.held` in bytes, counted; what is gathered counts as buckets. What
        chunks keep for the backward pass counts as of the stages of a split, with the samples; it
        is not seen where a compiled graph computes the loss with its gradients."""
        nbytes, stage = self.comm.nbytes, self.sharding.stage
        gathered = [self.gradients_of] * (stage > 1) + [self.weights_of] * (stage > 2)
        kept = None
        if batch is not None:
            self.stage.measuring = True
            loss = self.forward(batch[: self.recipe.chunk], self.now + 1, fetch=False)
            kept, self.stage.measuring = None if loss is None else self.stage.held(), False
            self.flat.drop()
        return Memory(
            weights=sum(map(nbytes, self.own if stage == 3 else self.weights_of)),
            gradients=sum(map(nbytes, self.gradients_of if stage == 1 else self.sums)),
            state=self.shard.held() + self.sharding.lower * sum(map(nbytes, self.masters)),
            activations=kept,
            buckets=sum(
                sum(largest([nbytes(v) for v in vectors], self.sharding.rooms))
                for vectors in gathered
            ),
        )

    # --- what it holds ----------------------------------------------------------------------------

    def named(self, wholes: Iterable[Array]) -> Arrays:
        """Canonical name → its part of the vectors, one of each unit."""
        parts: Arrays = {}
        for unit, vector in zip(self.units, wholes, strict=True):
            parts |= unit.named(vector)
        return parts

    def part(self, vector: Array) -> Array:
        """This rank's of a whole vector."""
        return np.split(vector, self.comm.size)[self.comm.rank]

    def gradients(self) -> Arrays:
        """The sum over the ranks, as the optimizers get it."""
        return self.named(self.moves.whole(self.comm.numpy(part)) for part in self.handed())

    def own_gradients(self) -> Arrays:
        """What this rank adds to the sum; of stage 1, before it is made."""
        return self.named(map(self.array, self.gradients_of))

    def weights(self) -> Arrays:
        """The float32 ones, which the ranks put together where none has all of them."""
        if self.sharding.stage == 3 or self.sharding.lower:
            parts = map(self.own_part, range(len(self.units)))
            return self.named(map(self.moves.whole, parts))
        return self.named(map(self.comm.numpy, self.weights_of))

    def own_copies(self) -> Arrays:
        """Copy what this rank holds without asking the others: the whole weights, in stage 3 its
        part of each unit's, under keys of its own."""
        if self.sharding.stage < 3:
            return self.named(map(self.array, self.weights_of))
        rank = self.comm.rank
        return {f"unit {i} of rank {rank}": self.own_part(i) for i in range(len(self.units))}

    def own_part(self, number: int) -> Array:
        """A copy of this rank's part of the float32 weights of a unit."""
        part: Array = self.comm.numpy(self.masters[number])
        return part

    def put_own(self, number: int, part: Array) -> None:
        """Replace it."""
        self.flat.put(self.masters[number], part)

    def state(self) -> dict[str, Arrays]:
        slots = self.shard.state().items()
        own = {slot: self.named(map(self.moves.whole, parts)) for slot, parts in slots}
        return own | self.scaling()

    def load(self, weights: Mapping[str, Array], state: Mapping[str, Arrays], step: int) -> None:
        self.put(weights)
        slots: Slots = {
            slot: [self.part(unit.vector(named, np.float64)) for unit in self.units]
            for slot, named in self.rescale(state).items()
        }
        self.shard.load(slots, self.made(step))
        self.now = step

    def put(self, weights: Mapping[str, Array]) -> None:
        """Replace the weights, which are whole."""
        self.there.clear()
        for number, unit in enumerate(self.units):
            whole = unit.vector(weights, self.backend.dtype)
            own, given = self.comm.tensor(self.part(whole)), self.comm.tensor(whole)
            self.put_own(number, self.part(whole))
            if self.sharding.lower:
                own, given = self.lowered.rounded(own), self.lowered.rounded(given)
            if self.sharding.stage == 3:
                if self.sharding.lower:
                    self.comm.write(self.own[number], 0, own, "put")
            else:
                self.comm.write(self.weights_of[number], 0, given, "put")

    def move(self, by: Callable[[Arrays], Mapping[str, Array]]) -> None:
        self.put(by(self.weights()))
