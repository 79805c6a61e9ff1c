"""Forward and backward passes of a model with sharded parameters, as one of its ranks."""

from __future__ import annotations

from typing import Any

import numpy as np

from dualml.backend import (
    Array,
    Backend,
    MixedStage,
    Recipe,
    Recomputing,
    Stage,
    Staging,
    chunks,
)
from dualml.backend.ability import Tensor
from dualml.backend.shard import Shard, Shardable, Vectors
from dualml.communicator import Communicator
from dualml.communicator.how import Pending
from dualml.errors import Unsupported
from dualml.model.dropout import masks
from dualml.zero.moves import Moves
from dualml.zero.settings import Sharding
from dualml.zero.units import segments_of, units_of

#: No samples: the piece of a rank that has fewer pieces than the others.
NOTHING = np.zeros(0, np.int64)


class Passes:
    """One rank's shard of a model, with passes that gather the whole model unit by unit.

    In stage 1 the model is one segment, so that frameworks that compile it compile the whole. In
    stages 2 and 3 every unit is a segment.

    Attributes:
        unit_weights, unit_gradients: the full vector of each unit; with stage 3 (weights) and
            stages 2 and 3 (gradients), the vectors share `Sharding.buffer_slots` buffers.
        weight_shards: this rank's part of the weights of each unit.
        gradient_shards: this rank's part of the gradient of each unit, summed over ranks and
            chunks; in stage 1 views of ``unit_gradients``.
        master_weights: this rank's part of the float32 weights; the same as ``weight_shards``
            unless weights are held in low precision.
        micro_steps: number of chunks on the rank with most samples; all ranks communicate that
            often in stages 2 and 3.
        resident: in stage 3, slot → the unit whose weights are in it, or will be after
            ``pending_gathers``; a resident unit is not gathered again until the weights change.
        pending_gathers: slot → unfinished all-gather.
        pending_reductions: slot → unfinished reduce-scatter of the gradient in it.
    """

    def __init__(
        self, backend: Backend, recipe: Recipe, comm: Communicator, sharding: Sharding
    ) -> None:
        self.backend, self.recipe, self.comm, self.sharding = backend, recipe, comm, sharding
        self.rounds, apart, weights_apart = 1, sharding.stage > 1, sharding.stage > 2
        self.units = units_of(recipe.spec, sharding.bucket_bytes, comm.size)
        cuts = [unit.layers for unit in self.units] if apart else [slice(0, None)]
        self.segments = segments_of(recipe.spec, cuts, recipe.precision.lower)
        self.stage, self.flat = self.staged()
        names, lengths = [list(u.shapes) for u in self.units], [u.length for u in self.units]
        rooms = sharding.rooms
        self.weights_of, self.gradients_of = self.flat.flatten(
            Vectors(names, lengths, rooms * weights_apart, sharding.lower),
            Vectors(names, lengths, rooms * apart, sharding.lower),
        )
        self.moves = Moves(comm, sharding)
        self.there: dict[int, int] = {}
        self.coming, self.adding = dict[int, Pending](), dict[int, Pending]()
        self.own = self.own_weights()
        self.sums = [self.moves.own(vector) for vector in self.gradients_of]
        if apart:
            self.sums = [comm.copy(part) for part in self.sums]
        self.masters = list(self.own)
        if sharding.lower:
            self.masters = [comm.copy(self.lowered.widened(part)) for part in self.own]
        self.shard = self.optimizer()

    def own_weights(self) -> list[Tensor]:
        """Return this rank's part of the weights of each unit: a view, in stage 3 a copy."""
        own = [self.moves.own(vector) for vector in self.weights_of]
        return [self.comm.copy(part) for part in own] if self.sharding.stage == 3 else own

    def optimizer(self) -> Shard:
        """Make the optimizer of this rank's part of all units."""
        return self.flat.shard(self.recipe, self.masters)

    def staged(self) -> tuple[Stage, Shardable]:
        """Make the backend's stage of the whole model and return it as a `Stage` and as its flat
        parameter storage.

        Raises:
            Unsupported: this backend does not train parts of models, or lacks a needed capability.
        """
        staging = self.backend.ability(Staging)
        stage = staging.stage(self.segments, self.recipe, first=True, last=True)
        if not isinstance(stage, Shardable):
            raise Unsupported(f"this backend cannot {Shardable.does}")
        if self.recipe.precision.lower and not isinstance(stage, MixedStage):
            raise Unsupported(f"this backend cannot {MixedStage.does}")
        if self.recipe.recompute and not isinstance(stage, Recomputing):
            raise Unsupported(f"this backend cannot {Recomputing.does}")
        return stage, stage

    def run(self, part: Array, step: int, factor: float) -> Any:
        """Compute ``factor`` times the gradient of this rank's part of a batch. It is left in
        ``unit_gradients`` or, in stages 2 and 3, summed over the ranks in ``gradient_shards``.
        Return the lazy loss, None if the part is empty."""
        self.there.clear()  # left by a skipped update or an evaluation; keeps volumes predictable
        if self.sharding.stage == 1:
            for vector in self.gradients_of:
                self.flat.wipe(vector)
        pieces, losses = chunks(part, self.recipe.chunk), []
        for number in range(max(self.rounds, len(pieces))):
            piece, share = pieces[number] if number < len(pieces) else (NOTHING, 0.0)
            loss = self.round(piece, step, share * factor, number == 0)
            if len(piece):
                losses.append((loss, share))
        for room in list(self.adding):
            self.settle(room)
        return self.stage.lazy(losses) if losses else None

    def round(self, piece: Array, step: int, factor: float, first: bool) -> Any:
        """Run forward and backward passes of one chunk and return its lazy loss. With an empty
        chunk, the rank only takes part in the collectives."""
        loss = self.forward(piece, step)
        flow: Any = None
        for number in reversed(range(len(self.segments))):
            self.fetch(number, then=number - 1)
            if self.sharding.stage > 1:
                self.settle(number % self.sharding.rooms)
                self.flat.wipe(self.gradients_of[number])
            if len(piece) and flow is None:
                late, flow = self.stage.loss_backward(0, factor)
                loss = late if loss is None else loss
            elif len(piece):
                flow = self.stage.backward(number, 0, flow)
            if self.sharding.stage > 1:
                pending = self.moves.begin(self.add_up, number, "put" if first else "add")
                self.adding[number % self.sharding.rooms] = pending
        return loss

    def add_up(self, number: int, then: str) -> None:
        """Reduce-scatter a unit's gradient and write or add this rank's part to
        ``gradient_shards``."""
        part = self.moves.reduce(self.gradients_of[number])
        self.comm.write(self.sums[number], 0, part, then)
        self.round_sum(self.sums[number])

    def settle(self, room: int) -> None:
        """Wait for the pending reduce-scatter in a buffer slot."""
        if room in self.adding:
            self.adding.pop(room).wait()

    def forward(self, piece: Array, step: int, fetch: bool = True) -> Any:
        """Run the forward pass of a chunk; return its lazy loss, None if it comes with the backward
        pass.

        Args:
            piece: sample indices of the chunk.
            step: number of the update, from which dropout masks are drawn.
            fetch: whether the units are gathered from the other ranks; otherwise their current
                content is used.
        """
        there, last = len(piece) > 0, len(self.segments) - 1
        drawn = masks(self.recipe.spec, self.recipe.seed, step, piece) if there else {}
        values: Any = (self.stage.samples(piece),) if there else ()
        for number, segment in enumerate(self.segments):
            if fetch:
                self.fetch(number, then=number + 1)
            own = [drawn[name] for name, _ in segment.layers if name in drawn]
            if there and number == last:
                return self.stage.loss(0, values, self.stage.labels(piece), own)
            if there:
                values = self.stage.forward(number, 0, values, own)
        return None

    def fetch(self, number: int, then: int = -1) -> None:
        """Wait until the weights of a unit are gathered; resident units are not gathered again.

        Args:
            number: the unit.
            next_unit: the unit that is needed next; with overlap its gather starts now.
        """
        self.ask_for(number)
        if number % self.sharding.rooms in self.coming:
            self.coming.pop(number % self.sharding.rooms).wait()
        if self.sharding.overlap and 0 <= then < len(self.segments):
            self.ask_for(then)

    def ask_for(self, number: int) -> None:
        """Start gathering a unit into a buffer slot that is not in use, unless the unit is
        resident."""
        room = number % self.sharding.rooms
        if self.sharding.stage == 3 and self.there.get(room) != number:
            self.there[room] = number
            self.coming[room] = self.moves.begin(self.gather, number)

    def gather(self, number: int) -> None:
        """All-gather the weights of a unit into its vector."""
        vector = self.weights_of[number]
        self.comm.write(self.moves.own(vector), 0, self.own[number], "put")
        self.moves.gather(vector)

    def combine(self) -> None:
        """Reduce-scatter the gradients over the ranks, if that was not done unit by unit (stage
        1)."""
        if self.sharding.stage == 1:
            for vector in self.gradients_of:
                self.round_sum(self.moves.reduce(vector))

    # --- a lower type -----------------------------------------------------------------------------

    @property
    def lowered(self) -> MixedStage:
        """The stage as one that computes in mixed precision."""
        assert isinstance(self.stage, MixedStage)  # checked by `build_stage`
        return self.stage

    def round_sum(self, part: Tensor) -> None:
        """Round a sum to the type in which it is held; the reference holds rounded values in
        float64."""
        if self.sharding.lower:
            self.comm.write(part, 0, self.lowered.rounded(part), "put")

    def handed(self) -> list[Tensor]:
        """Return ``gradient_shards`` in the type that the optimizer takes."""
        if not self.sharding.lower:
            return self.sums
        return [self.lowered.widened(part) for part in self.sums]

    def lower_weights(self) -> None:
        """Cast the float32 master weights to this rank's low-precision weights."""
        if self.sharding.lower:
            for part, master in zip(self.own, self.masters, strict=True):
                self.comm.write(part, 0, self.lowered.rounded(master), "put")

    # ----------------------------------------------------------------------------------------------

    def spread(self) -> None:
        """All-gather the updated weights, except in stage 3, where units are gathered when they are
        needed."""
        self.there.clear()
        if self.sharding.stage < 3:
            for vector in self.weights_of:
                self.moves.gather(vector)

    def infer(self, values: Any) -> tuple[Tensor, dict[str, Tensor]]:
        """Evaluate the model; return the logits and the output of every layer."""
        outputs: dict[str, Tensor] = {}
        for number, segment in enumerate(self.segments):
            self.fetch(number)
            values, tops = self.stage.infer(number, values)
            outputs |= {name: top for (name, _), top in zip(segment.layers, tops, strict=True)}
        return values[-1], outputs
