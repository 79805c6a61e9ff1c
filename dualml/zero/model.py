"""A model with sharded parameters, gradients and optimizer state, as a `Training`.

Weights, gradients and state go in and come out whole, under their canonical names, so that
checkpoints do not depend on the ranks. Every rank calls the same methods in the same order.
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

#: Error if one rank alone uses a sharded model.
TOGETHER = "the ranks of a sharded model work on it together: see dualml.zero.parallel"


class ShardedModel(Passes, Training, Observable, Mixed, Weighable):
    """A ZeRO model; updates and evaluations are driven by
    `dualml.zero.parallel.ZeroDataParallel`."""

    def __init__(
        self, backend: Backend, recipe: Recipe, comm: Communicator, sharding: Sharding
    ) -> None:
        super().__init__(backend, recipe, comm, sharding)
        self.now, self.scaler = 0, recipe.precision.scaler()

    @property
    def held(self) -> How:
        assert isinstance(self.stage, MixedStage)  # checked by `build_stage`
        return self.stage.how

    # --- one update -------------------------------------------------------------------------------

    def step(self, batch: Array, step: int) -> Any:
        raise Unsupported(TOGETHER)

    def trace(self, batch: Array, probe: Array) -> Trace:
        raise Unsupported(TOGETHER)

    def gradient(self, part: Array, factor: float) -> Any:
        """Compute the gradient of ``factor`` times the scaled loss for the next update; return the
        lazy loss."""
        return self.run(part, self.now + 1, factor * self.scale)

    def update(self, step: int) -> None:
        """Apply update ``step`` to this rank's part of the weights; all ranks apply or skip it
        together."""
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
        """Return whether the gradients of all ranks are finite."""
        own = self.comm.tensor(np.array([self.shard.finite(sums)], np.float32))
        return bool(self.comm.numpy(self.comm.all_reduce(own, "min"))[0])

    # --- looking ----------------------------------------------------------------------------------

    def look(self, batch: Array, probe: Array) -> tuple[str, Arrays]:
        filled = np.resize(probe, max(len(probe), self.stage.infers))
        _, outputs = self.infer((self.stage.samples(filled),))
        seen = {name: self.array(output)[: len(probe)] for name, output in outputs.items()}
        return batch_digest(*self.given(batch)), seen

    def array(self, output: Tensor) -> Array:
        """Copy a tensor to the host, as float32 if NumPy does not have its type."""
        if isinstance(self.stage, MixedStage) and self.stage.lower:
            output = self.stage.widened(output)
        array: Array = self.comm.numpy(output)
        return array

    def given(self, batch: Array) -> tuple[Array, Array]:
        return self.recipe.x[batch], self.recipe.y[batch]

    def evaluate(self, x: Array, y: Array) -> tuple[float, Array]:
        """Return the mean loss and the predicted classes; in stage 3 all ranks must call this
        together."""
        filled = np.resize(x, (max(len(x), self.stage.infers), *x.shape[1:]))
        logits, _ = self.infer((self.stage.inputs(filled),))
        return self.stage.score(logits, self.stage.targets(y))

    def memory(self, batch: Array | None = None) -> Memory:
        """Measure what `dualml.zero.units.estimate_memory` predicts, in bytes; gathered units count
        as buckets.

        Activations are the bytes saved for the backward pass of a chunk of ``batch``, samples
        included; None without a batch, or if a compiled graph computes the loss together with its
        gradients.
        """
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
        """Return canonical name → array, from one whole vector per unit."""
        parts: Arrays = {}
        for unit, vector in zip(self.units, wholes, strict=True):
            parts |= unit.named(vector)
        return parts

    def part(self, vector: Array) -> Array:
        """Return this rank's part of a whole vector."""
        return np.split(vector, self.comm.size)[self.comm.rank]

    def gradients(self) -> Arrays:
        """Return the gradients summed over the ranks, as the optimizer receives them."""
        return self.named(self.moves.whole(self.comm.numpy(part)) for part in self.handed())

    def own_gradients(self) -> Arrays:
        """Return this rank's contribution to the gradient sum; in stage 1, before the reduction."""
        return self.named(map(self.array, self.gradients_of))

    def weights(self) -> Arrays:
        """Return the whole float32 weights, gathered from the ranks if no rank has all of them."""
        if self.sharding.stage == 3 or self.sharding.lower:
            parts = map(self.own_part, range(len(self.units)))
            return self.named(map(self.moves.whole, parts))
        return self.named(map(self.comm.numpy, self.weights_of))

    def own_copies(self) -> Arrays:
        """Return what this rank holds without communication: the whole weights, in stage 3 its part
        of each unit's weights under keys that name unit and rank."""
        if self.sharding.stage < 3:
            return self.named(map(self.array, self.weights_of))
        rank = self.comm.rank
        return {f"unit {i} of rank {rank}": self.own_part(i) for i in range(len(self.units))}

    def own_part(self, number: int) -> Array:
        """Return a copy of this rank's part of the float32 weights of a unit."""
        part: Array = self.comm.numpy(self.masters[number])
        return part

    def put_own(self, number: int, part: Array) -> None:
        """Replace this rank's part of the float32 weights of a unit."""
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
        """Replace the weights by whole arrays."""
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
