"""Forward and backward passes of a model whose numbers the ranks share out, as one of them."""

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

NOTHING = np.zeros(0, np.int64)


class Passes:
    """This rank's part of a model, and the whole of it unit by unit.

    In stage 1 the model is one segment: frameworks that compile it compile the whole. In stages 2
    and 3 every unit is one.

    Attributes:
        weights_of, gradients_of: the vector of each unit; of stage 3, and of stages 2 and 3, there
            are only as many of them at a time as there are `Sharding.rooms`.
        own: this rank's part of the weights of each unit.
        sums: this rank's part of the gradient of each unit, added up over ranks and chunks; of
            stage 1 parts of ``gradients_of``.
        masters: this rank's part of the float32 weights; where nothing is held in a lower type,
            ``own``.
        rounds: chunks that the rank with most samples makes of its part of the batch: as often all
            ranks meet in stages 2 and 3.
        there: of stage 3, room → the unit whose weights it holds, or will hold once ``coming`` is
            waited for; what is there is not fetched again until the weights change.
        adding: room → the unfinished sum of the gradient in it.
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
        """Where this rank's part of the weights of each unit is."""
        own = [self.moves.own(vector) for vector in self.weights_of]
        return [self.comm.copy(part) for part in own] if self.sharding.stage == 3 else own

    def optimizer(self) -> Shard:
        """Of this rank's part of all units."""
        return self.flat.shard(self.recipe, self.masters)

    def staged(self) -> tuple[Stage, Shardable]:
        """The model as the backend computes it, and as the place of its numbers.

        Raises:
            Unsupported: this backend trains no parts of models, or not so.
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
        """The lazy loss of this rank's part of a batch, None where it has none; ``factor`` times
        its gradient is in ``gradients_of``, or in stages 2 and 3 added up over the ranks in
        ``sums``."""
        self.there.clear()  # of a skipped update, or a look: what an update sends is a closed form
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
        """Forward and backward of one chunk; its lazy loss. Of an empty one this rank only hands on
        what the others need."""
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
        """This rank's part of the sum of a unit's gradient over the ranks, to ``sums``."""
        part = self.moves.reduce(self.gradients_of[number])
        self.comm.write(self.sums[number], 0, part, then)
        self.round_sum(self.sums[number])

    def settle(self, room: int) -> None:
        """Wait until the gradient in this room is added up."""
        if room in self.adding:
            self.adding.pop(room).wait()

    def forward(self, piece: Array, step: int, fetch: bool = True) -> Any:
        """The lazy loss of a chunk, None where it comes with the backward pass.

        Args:
            fetch: whether units come from the other ranks; else with whatever numbers there are.
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
        """The weights of a unit, from all ranks' parts; nothing where they are there.

        Args:
            then: the unit that will be asked for next, which with overlap is on its way meanwhile.
        """
        self.ask_for(number)
        if number % self.sharding.rooms in self.coming:
            self.coming.pop(number % self.sharding.rooms).wait()
        if self.sharding.overlap and 0 <= then < len(self.segments):
            self.ask_for(then)

    def ask_for(self, number: int) -> None:
        """Begin to fetch, into a room that nobody computes with."""
        room = number % self.sharding.rooms
        if self.sharding.stage == 3 and self.there.get(room) != number:
            self.there[room] = number
            self.coming[room] = self.moves.begin(self.gather, number)

    def gather(self, number: int) -> None:
        vector = self.weights_of[number]
        self.comm.write(self.moves.own(vector), 0, self.own[number], "put")
        self.moves.gather(vector)

    def combine(self) -> None:
        """Add up the gradients over the ranks, where that has not been done unit by unit."""
        if self.sharding.stage == 1:
            for vector in self.gradients_of:
                self.round_sum(self.moves.reduce(vector))

    # --- a lower type -----------------------------------------------------------------------------

    @property
    def lowered(self) -> MixedStage:
        """The stage, where whole weights and gradients are held in a lower type."""
        assert isinstance(self.stage, MixedStage)  # see `staged`
        return self.stage

    def round_sum(self, part: Tensor) -> None:
        """A sum in the type that it is held in: the referee holds float64, rounded."""
        if self.sharding.lower:
            self.comm.write(part, 0, self.lowered.rounded(part), "put")

    def handed(self) -> list[Tensor]:
        """``sums`` as the optimizer takes them."""
        if not self.sharding.lower:
            return self.sums
        return [self.lowered.widened(part) for part in self.sums]

    def lower_weights(self) -> None:
        """This rank's part of the weights, from the float32 ones."""
        if self.sharding.lower:
            for part, master in zip(self.own, self.masters, strict=True):
                self.comm.write(part, 0, self.lowered.rounded(master), "put")

    # ----------------------------------------------------------------------------------------------

    def spread(self) -> None:
        """Give this rank's part of the weights to all, unless they fetch it when they need it."""
        self.there.clear()
        if self.sharding.stage < 3:
            for vector in self.weights_of:
                self.moves.gather(vector)

    def infer(self, values: Any) -> tuple[Tensor, dict[str, Tensor]]:
        """Logits, and the output of every layer, in evaluation mode."""
        outputs: dict[str, Tensor] = {}
        for number, segment in enumerate(self.segments):
            self.fetch(number)
            values, tops = self.stage.infer(number, values)
            outputs |= {name: top for (name, _), top in zip(segment.layers, tops, strict=True)}
        return values[-1], outputs
