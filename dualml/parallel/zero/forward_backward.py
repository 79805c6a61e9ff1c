"""Forward and backward passes of a model with sharded parameters, as one of its ranks."""

from __future__ import annotations

from typing import Any

import numpy as np

from dualml.algorithms.communicator import Communicator
from dualml.algorithms.communicator.primitives import WorkHandle
from dualml.algorithms.model.dropout import dropout_masks
from dualml.backend import (
    ActivationRecomputation,
    Array,
    Backend,
    MixedPrecisionStage,
    PipelineStages,
    Stage,
    TrainingSpec,
    split_into_chunks,
)
from dualml.backend.capability import Tensor
from dualml.backend.shard import FlatLayout, FlatParameterStorage, OptimizerShard
from dualml.common.errors import Unsupported
from dualml.parallel.zero.collectives import ShardCollectives
from dualml.parallel.zero.settings import Sharding
from dualml.parallel.zero.units import make_segments, units_of

#: No samples: the piece of a rank that has fewer pieces than the others.
NO_INDICES = np.zeros(0, np.int64)


class ShardedForwardBackward:
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
        self, backend: Backend, recipe: TrainingSpec, comm: Communicator, sharding: Sharding
    ) -> None:
        self.backend, self.recipe, self.comm, self.sharding = backend, recipe, comm, sharding
        self.micro_steps, apart, weights_apart = 1, sharding.stage > 1, sharding.stage > 2
        self.units = units_of(recipe.spec, sharding.bucket_bytes, comm.size)
        cuts = [unit.layers for unit in self.units] if apart else [slice(0, None)]
        self.segments = make_segments(recipe.spec, cuts, recipe.precision.is_low)
        self.stage, self.shardable = self.build_stage()
        names, lengths = [list(u.shapes) for u in self.units], [u.length for u in self.units]
        slots = sharding.buffer_slots
        self.unit_weights, self.unit_gradients = self.shardable.flatten(
            FlatLayout(names, lengths, slots * weights_apart, sharding.lower),
            FlatLayout(names, lengths, slots * apart, sharding.lower),
        )
        self.collectives = ShardCollectives(comm, sharding)
        self.resident: dict[int, int] = {}
        self.pending_gathers = dict[int, WorkHandle]()
        self.pending_reductions = dict[int, WorkHandle]()
        self.weight_shards = self.make_weight_shards()
        self.gradient_shards = [
            self.collectives.local_part(vector) for vector in self.unit_gradients
        ]
        if apart:
            self.gradient_shards = [comm.copy(part) for part in self.gradient_shards]
        self.master_weights = list(self.weight_shards)
        if sharding.lower:
            self.master_weights = [
                comm.copy(self.mixed_stage.upcast(part)) for part in self.weight_shards
            ]
        self.shard = self.make_optimizer()

    def make_weight_shards(self) -> list[Tensor]:
        """Return this rank's part of the weights of each unit: a view, in stage 3 a copy."""
        own = [self.collectives.local_part(vector) for vector in self.unit_weights]
        return [self.comm.copy(part) for part in own] if self.sharding.stage == 3 else own

    def make_optimizer(self) -> OptimizerShard:
        """Make the optimizer of this rank's part of all units."""
        return self.shardable.make_optimizer_shard(self.recipe, self.master_weights)

    def build_stage(self) -> tuple[Stage, FlatParameterStorage]:
        """Make the backend's stage of the whole model and return it as a `Stage` and as its flat
        parameter storage.

        Raises:
            Unsupported: this backend does not train parts of models, or lacks a needed capability.
        """
        staging = self.backend.require_capability(PipelineStages)
        stage = staging.stage(self.segments, self.recipe, first=True, last=True)
        if not isinstance(stage, FlatParameterStorage):
            raise Unsupported(f"this backend cannot {FlatParameterStorage.description}")
        if self.recipe.precision.is_low and not isinstance(stage, MixedPrecisionStage):
            raise Unsupported(f"this backend cannot {MixedPrecisionStage.description}")
        if self.recipe.recompute and not isinstance(stage, ActivationRecomputation):
            raise Unsupported(f"this backend cannot {ActivationRecomputation.description}")
        return stage, stage

    def run(self, part: Array, step: int, factor: float) -> Any:
        """Compute ``factor`` times the gradient of this rank's part of a batch. It is left in
        ``unit_gradients`` or, in stages 2 and 3, where all ranks call it, summed over the ranks in
        ``gradient_shards``. Return the lazy loss, None if the part is empty."""
        # Units left by a skipped update or an evaluation would change the predicted volume.
        self.resident.clear()
        if self.sharding.stage == 1:
            for vector in self.unit_gradients:
                self.shardable.zero_vector(vector)
        pieces, losses = split_into_chunks(part, self.recipe.chunk), []
        for number in range(max(self.micro_steps, len(pieces))):
            piece, share = pieces[number] if number < len(pieces) else (NO_INDICES, 0.0)
            loss = self.micro_step(piece, step, share * factor, number == 0)
            if len(piece):
                losses.append((loss, share))
        for slot in list(self.pending_reductions):
            self.wait_reduction(slot)
        return self.stage.combine_losses(losses) if losses else None

    def micro_step(self, piece: Array, step: int, factor: float, first: bool) -> Any:
        """Run forward and backward passes of the chunk ``piece`` and return its lazy loss; in
        stages 2 and 3 start to reduce each gradient, which replaces this rank's shards if ``first``
        and is added to them otherwise. With an empty chunk, take part in the collectives only and
        return None."""
        loss = self.forward(piece, step)
        flow: Any = None
        for number in reversed(range(len(self.segments))):
            self.fetch_unit(number, next_unit=number - 1)
            if self.sharding.stage > 1:
                self.wait_reduction(number % self.sharding.buffer_slots)
                self.shardable.zero_vector(self.unit_gradients[number])
            if len(piece) and flow is None:
                late, flow = self.stage.loss_backward(0, factor)
                loss = late if loss is None else loss
            elif len(piece):
                flow = self.stage.backward(number, 0, flow)
            if self.sharding.stage > 1:
                pending = self.collectives.start(
                    self.reduce_scatter_unit, number, "put" if first else "add"
                )
                self.pending_reductions[number % self.sharding.buffer_slots] = pending
        return loss

    def reduce_scatter_unit(self, number: int, mode: str) -> None:
        """Reduce-scatter the gradient of unit ``number`` and write this rank's part to
        ``gradient_shards``, or add it (``mode`` ``put`` or ``add``)."""
        part = self.collectives.reduce_scatter(self.unit_gradients[number])
        self.comm.write(self.gradient_shards[number], 0, part, mode)
        self.round_to_low_precision(self.gradient_shards[number])

    def wait_reduction(self, slot: int) -> None:
        """Wait for the pending reduce-scatter in a buffer slot, if there is one."""
        if slot in self.pending_reductions:
            self.pending_reductions.pop(slot).wait()

    def forward(self, piece: Array, step: int, fetch: bool = True) -> Any:
        """Run the forward pass of a chunk; return its lazy loss, None if it comes with the backward
        pass or the chunk is empty.

        Args:
            piece: sample indices of the chunk.
            step: number of the update, from which dropout masks are drawn.
            fetch: whether the units are gathered from the other ranks; otherwise their current
                content is used.
        """
        there, last = len(piece) > 0, len(self.segments) - 1
        drawn = dropout_masks(self.recipe.spec, self.recipe.seed, step, piece) if there else {}
        values: Any = (self.stage.samples(piece),) if there else ()
        for number, segment in enumerate(self.segments):
            if fetch:
                self.fetch_unit(number, next_unit=number + 1)
            own = [drawn[name] for name, _ in segment.layers if name in drawn]
            if there and number == last:
                return self.stage.loss(0, values, self.stage.labels(piece), own)
            if there:
                values = self.stage.forward(number, 0, values, own)
        return None

    def fetch_unit(self, number: int, next_unit: int = -1) -> None:
        """Wait until the weights of a unit are gathered; resident units are not gathered again.

        Args:
            number: the unit.
            next_unit: the unit that is needed next; with overlap its gather starts now.
        """
        self.prefetch_unit(number)
        if number % self.sharding.buffer_slots in self.pending_gathers:
            self.pending_gathers.pop(number % self.sharding.buffer_slots).wait()
        if self.sharding.overlap and 0 <= next_unit < len(self.segments):
            self.prefetch_unit(next_unit)

    def prefetch_unit(self, number: int) -> None:
        """Start to gather the weights of unit ``number`` into its buffer slot, unless they are
        there already or on their way; do nothing in stages 1 and 2."""
        slot = number % self.sharding.buffer_slots
        if self.sharding.stage == 3 and self.resident.get(slot) != number:
            self.resident[slot] = number
            self.pending_gathers[slot] = self.collectives.start(self.gather_unit, number)

    def gather_unit(self, number: int) -> None:
        """All-gather the weights of unit ``number`` from ``weight_shards`` into its vector, in
        place."""
        vector = self.unit_weights[number]
        self.comm.write(self.collectives.local_part(vector), 0, self.weight_shards[number], "put")
        self.collectives.all_gather(vector)

    def reduce_gradients(self) -> None:
        """Reduce-scatter the gradients over the ranks in stage 1; do nothing in stages 2 and 3,
        which do it unit by unit in `micro_step`."""
        if self.sharding.stage == 1:
            for vector in self.unit_gradients:
                self.round_to_low_precision(self.collectives.reduce_scatter(vector))

    # --- low precision ----------------------------------------------------------------------------

    @property
    def mixed_stage(self) -> MixedPrecisionStage:
        """The stage as one that computes in mixed precision."""
        assert isinstance(self.stage, MixedPrecisionStage)  # checked by `build_stage`
        return self.stage

    def round_to_low_precision(self, part: Tensor) -> None:
        """Round ``part`` in place to the low precision in which gradients are held; do nothing if
        they are not. The reference holds rounded values in float64."""
        if self.sharding.lower:
            self.comm.write(part, 0, self.mixed_stage.downcast(part), "put")

    def master_grads(self) -> list[Tensor]:
        """Return ``gradient_shards``, one tensor per unit, in float32 if they are of low
        precision."""
        if not self.sharding.lower:
            return self.gradient_shards
        return [self.mixed_stage.upcast(part) for part in self.gradient_shards]

    def cast_master_weights(self) -> None:
        """Overwrite this rank's low-precision weights by its float32 master weights, rounded; do
        nothing unless weights are held in low precision."""
        if self.sharding.lower:
            for part, master in zip(self.weight_shards, self.master_weights, strict=True):
                self.comm.write(part, 0, self.mixed_stage.downcast(master), "put")

    # ----------------------------------------------------------------------------------------------

    def all_gather_params(self) -> None:
        """All-gather the updated weights into the units' vectors, except in stage 3, where units
        are gathered when they are needed. All ranks call it."""
        self.resident.clear()
        if self.sharding.stage < 3:
            for vector in self.unit_weights:
                self.collectives.all_gather(vector)

    def infer(self, values: Any) -> tuple[Tensor, dict[str, Tensor]]:
        """Run all units in evaluation mode on the input stack ``values``; return the logits and
        layer name → output. In stage 3 all ranks must call this together."""
        outputs: dict[str, Tensor] = {}
        for number, segment in enumerate(self.segments):
            self.fetch_unit(number)
            values, tops = self.stage.infer(number, values)
            outputs |= {name: top for (name, _), top in zip(segment.layers, tops, strict=True)}
        return values[-1], outputs
