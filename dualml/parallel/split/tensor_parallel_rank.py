"""Collectives of a rank with the ranks that share its layers or positions: its tensor-parallel
group."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from dualml.algorithms.communicator import Communicator
from dualml.backend import ActivationResharding, BlockwiseAttention, MixedPrecisionStage
from dualml.backend.stage import Stage, Tensor, Values
from dualml.parallel.aggregation import strategy
from dualml.parallel.aggregation.straggler import Straggler, pause
from dualml.parallel.split.plan import SplitPlan
from dualml.parallel.split.positions import POSITION_SLICES
from dualml.parallel.split.ring import RingAttention, SavedAttention
from dualml.parallel.split.shards import TensorShard
from dualml.parallel.split.tensor_parallel import ParallelOp, RingAttentionOp
from dualml.parallel.split.timeline import Timeline


class TensorParallelRank:
    """A rank as a member of its tensor-parallel group.

    Attributes:
        views: stage → this rank's view of it.
        tp_group: communicator of the ranks that hold slices of the same layers; None if this rank
            is alone.
        slow: simulated straggler; None without one.
        step_count: number of the current update.
        mixed: the stage if it computes in mixed precision, else None.
        own_positions: this rank's positions of (batch, positions, …); None if positions are not
            sharded.
        rings: layer → its attention to the keys and values of all ranks of the group.
        dp_rank, tp_rank: this rank's coordinates in the mesh.
        ring_saves: (layer, micro-batch) → tensors that ring attention saved for the backward pass.
        saved_shards: (segment, micro-batch) → the local positions of the segment's input, to be
            gathered again.
    """

    def __init__(self, plan: SplitPlan, comm: Communicator, stage: Stage) -> None:
        self.plan, self.comm, self.stage, self.rank = plan, comm, stage, comm.rank
        self.dp_rank, _, self.tp_rank = plan.mesh.coordinates(self.rank)
        self.views = {view.stage: view for view in plan.rank_stages(self.rank)[0]}
        self.tp_group = make_group(comm, plan.mesh.tensor_groups())
        self.timeline, self.step_count = Timeline(), 0
        self.slow: Straggler | None = None
        self.mixed: MixedPrecisionStage | None = None
        if isinstance(stage, MixedPrecisionStage) and stage.is_low_precision:
            self.mixed = stage
        self.own_positions = self.position_shard(self.tp_rank) if plan.shared else None
        items = [item for view in self.views.values() for item in view.items]
        #: Layer and micro-batch → tensors saved for its backward pass.
        self.ring_saves: dict[tuple[str, int], SavedAttention] = {}
        #: Segment and micro-batch → local positions of its input, to be gathered again.
        self.saved_shards: dict[tuple[int, int], tuple[ParallelOp, Tensor]] = {}
        self.rings = {
            item.name: self.make_ring_attention(item)
            for item in items
            if isinstance(item, RingAttentionOp)
        }

    def to_wire(self, x: Tensor, lower: bool) -> Tensor:
        """Return a tensor in its wire type: of low precision if ``lower`` and the training is in
        mixed precision, unchanged otherwise."""
        return self.mixed.to_wire(x) if self.mixed is not None and lower else x

    def from_wire(self, x: Tensor, lower: bool) -> Tensor:
        """Return a received tensor in its compute type; the reverse of `to_wire`."""
        return self.mixed.from_wire(x) if self.mixed is not None and lower else x

    # --- inside a layer ---------------------------------------------------------------------------

    def communicate(self, pair: ParallelOp, values: Values, stage: int, micro: int) -> Values:
        """Apply the forward communication of the operator ``pair``, in ``stage`` for the
        micro-batch ``micro``, to the last tensor of the stack ``values``; return the new stack."""
        top = values[-1]
        if pair.kind == "copy":
            return values
        if pair.kind == "take":
            top = self.shard_sequence(top)
        elif pair.kind == "sum":
            top = self.all_reduce_activation(top, pair.lower, stage, micro)
        elif pair.kind == "scatter":
            top = self.reduce_scatter_dim(top, pair.lower, stage, micro)
        else:
            axis = pair.axis if pair.kind == "gather" else 1
            top = self.all_gather_dim(top, axis, pair.lower, stage, micro)
        return (*values[:-1], top)

    def communicate_back(
        self, pair: ParallelOp, gradients: Values, stage: int, micro: int
    ) -> Values:
        """Apply the backward communication of the operator ``pair``, which is no ``take``, to the
        last tensor of the stack ``gradients``; return the new stack."""
        top = gradients[-1]
        if pair.kind == "sum":
            return gradients
        assert self.tp_group is not None
        if pair.kind == "gather":
            top = self.stage.take_chunk(top, pair.axis, self.tp_group.rank, self.tp_group.size)
        elif pair.kind == "collect":
            top = self.reduce_scatter_dim(top, pair.lower, stage, micro, backward=True)
        elif pair.kind == "scatter":
            top = self.all_gather_dim(top, 1, pair.lower, stage, micro, backward=True)
        else:
            top = self.all_reduce_activation(top, pair.lower, stage, micro, backward=True)
        return (*gradients[:-1], top)

    def all_reduce_activation(
        self, x: Tensor, lower: bool, stage: int, micro: int, *, backward: bool = False
    ) -> Tensor:
        """Return the sum of ``x`` over the tensor-parallel group; ``x`` may be overwritten. A
        low-precision ``x`` (``lower``) is summed in float32 and then rounded, which adds one
        rounding for any number of ranks."""
        assert self.tp_group is not None
        mixed = self.mixed if lower else None
        x = x if mixed is None else mixed.upcast(x)
        with self.timeline.record("collective", stage, micro, backward, self.comm.nbytes(x)):
            x = self.all_reduce_sum(self.tp_group, x)
        return x if mixed is None else mixed.downcast(x)

    def all_gather_dim(
        self, x: Tensor, axis: int, lower: bool, stage: int, micro: int, *, backward: bool = False
    ) -> Tensor:
        """Return the slices ``x`` of all ranks of the group, concatenated along ``axis``; messages
        are in the low-precision type if ``lower``."""
        assert self.tp_group is not None
        x = self.to_wire(x, lower)
        with self.timeline.record("collective", stage, micro, backward, self.comm.nbytes(x)):
            return self.all_gather_concat(self.tp_group, x, axis, lower)

    def reduce_scatter_dim(
        self, x: Tensor, lower: bool, stage: int, micro: int, *, backward: bool = False
    ) -> Tensor:
        """Reduce-scatter ``x``, (batch, positions, …), over the tensor-parallel group along the
        positions: return this rank's range of positions of the sum. A low-precision ``x``
        (``lower``) is summed in float32 and then rounded."""
        assert self.tp_group is not None
        mixed, group = self.mixed if lower else None, self.tp_group
        x = x if mixed is None else mixed.upcast(x)
        with self.timeline.record("collective", stage, micro, backward, self.comm.nbytes(x)):
            self.delay_ring(group, self.comm.nbytes(x) // group.size)
            runs = [self.stage.take_chunk(x, 1, part, group.size) for part in range(group.size)]
            flat = self.stage.concat(runs, 0).reshape(-1)  # reduce_scatter splits a 1-D tensor
            x = group.reduce_scatter(flat).reshape(runs[0].shape)
        return x if mixed is None else mixed.downcast(x)

    def all_reduce_sum(self, group: Communicator, x: Tensor) -> Tensor:
        """Return the sum of ``x`` over the ranks of ``group``, which all call it; ``x`` may be
        overwritten. A straggler first sleeps."""
        if self.slow is not None and self.slow.rank == self.rank:
            schedule = strategy("all_reduce").schedule(group.size)
            late = replace(self.slow, rank=group.rank)  # a schedule uses ranks of the group
            pause(late.schedule_delay(schedule, group.rank, group.nbytes(x), self.step_count))
        return group.all_reduce(x, inplace=True)

    def delay_ring(self, group: Communicator, nbytes: int) -> None:
        """Sleep, if this rank is the straggler, as long as its delays in a native all-gather or
        reduce-scatter of ``group`` would last, as a ring of n − 1 steps that each send and receive
        ``nbytes`` bytes. Not for ring attention, whose messages are delayed one by one."""
        if self.slow is not None:
            delay = self.slow.transfer_delay(self.rank, nbytes, nbytes, self.step_count)
            pause((group.size - 1) * delay)

    def all_gather_concat(
        self, group: Communicator, x: Tensor, axis: int, lower: bool = False
    ) -> Tensor:
        """All-gather ``x`` over ``group`` and return all parts in the compute type, concatenated
        along ``axis`` in the order of ranks; ``lower`` says that ``x`` is in the low-precision wire
        type. A straggler first sleeps."""
        self.delay_ring(group, group.nbytes(x))
        parts = [self.from_wire(part, lower) for part in group.all_gather(x)]
        return self.stage.concat(parts, axis)

    # --- positions sharded over ranks -------------------------------------------------------------

    def position_shard(self, part: int) -> TensorShard:
        """Return the shard that says which positions of (batch, positions, …) rank ``part`` of the
        group has; its shape is not set. Only if positions are sharded."""
        axis, blocks, mirrored = POSITION_SLICES[self.plan.shared]
        return TensorShard((), axis, part, self.plan.mesh.tensor, blocks, mirrored)

    def shard_sequence(self, x: Tensor) -> Tensor:
        """Return this rank's positions of ``x``, (batch, all positions, …); all of ``x`` if
        positions are not sharded."""
        if self.own_positions is None:
            return x
        n = self.own_positions.parts * self.own_positions.blocks
        return self.stage.concat(
            [self.stage.take_chunk(x, 1, i, n) for i in self.own_positions.chunk_indices()], 1
        )

    def gather_sequence(self, x: Tensor, lower: bool) -> Tensor:
        """All-gather the position-sharded ``x``, (batch, local positions, …), and return all
        positions in their order; ``x`` itself if positions are not sharded. Messages are in the
        low-precision type if ``lower``."""
        if self.own_positions is None:
            return x
        assert self.tp_group is not None
        chunks, blocks = dict[int, Tensor](), self.own_positions.blocks
        for part, one in enumerate(self.tp_group.all_gather(self.to_wire(x, lower))):
            one = self.from_wire(one, lower)
            for number, i in enumerate(self.position_shard(part).chunk_indices()):
                chunks[i] = self.stage.take_chunk(one, 1, number, blocks)
        return self.stage.concat([chunks[i] for i in sorted(chunks)], 1)

    def make_ring_attention(self, item: RingAttentionOp) -> RingAttention:
        """Make the ring attention of the layer of ``item`` for this rank's positions."""
        assert self.tp_group is not None
        assert isinstance(self.stage, BlockwiseAttention)  # checked by `make_stage`
        whole = np.arange(item.layer.length)[None]
        places = replace(self.position_shard(self.tp_rank), shape=whole.shape).extract(whole)[0]
        return RingAttention(self.stage.attention(item.layer, places), self.tp_group)

    def attend_over_ring(
        self, item: RingAttentionOp, x: Tensor, stage: int, micro: int
    ) -> tuple[Tensor, SavedAttention]:
        """Run the forward pass of ring attention on ``x``, queries, keys and values of the local
        positions; return the output for these positions and the tensors to save for
        `ring_backward`."""
        during = partial(self.timeline.record, "collective", stage, micro, False)
        return self.rings[item.name].forward(x, during)

    # --- attention round a ring -------------------------------------------------------------------

    def ring_forward(self, item: RingAttentionOp, x: Tensor, stage: int, micro: int) -> Tensor:
        """Run the forward pass of ring attention, save its tensors for the backward pass, and
        return the output for the local positions."""
        y, self.ring_saves[item.name, micro] = self.attend_over_ring(item, x, stage, micro)
        return y

    def ring_backward(self, item: RingAttentionOp, flow: Tensor, stage: int, micro: int) -> Tensor:
        """Return the gradient of the input of `ring_forward` for this micro-batch from the gradient
        ``flow`` of its output; drop the tensors that were saved for it."""
        during = partial(self.timeline.record, "collective", stage, micro, True)
        kept = self.ring_saves.pop((item.name, micro))
        return self.rings[item.name].backward(kept, flow, during)

    def local_saved_bytes(self) -> int:
        """Return the bytes saved for backward passes in addition to those of the stage. The output
        of attention is not counted, because the next layer saves it."""
        kept = [one for q, kv, _, lse in self.ring_saves.values() for one in (q, kv, lse)]
        return sum(map(self.comm.nbytes, kept + [x for _, x in self.saved_shards.values()]))

    # --- what is collected again ------------------------------------------------------------------

    def free_gathered(self, segment: int, micro: int) -> None:
        """Free the gathered input of a segment if its local positions were saved, so that
        `restore_gathered` can gather it again; otherwise do nothing."""
        if (segment, micro) in self.saved_shards:
            assert isinstance(self.stage, ActivationResharding)  # checked by `make_stage`
            self.stage.free_activation(segment, micro)

    def restore_gathered(self, segment: int, micro: int, stage: int) -> None:
        """All-gather the input of a segment from the saved local positions and hand it to the
        stage, before the backward pass; do nothing if it was not freed."""
        if (segment, micro) in self.saved_shards:
            assert isinstance(self.stage, ActivationResharding)  # checked by `make_stage`
            pair, x = self.saved_shards.pop((segment, micro))
            x = self.all_gather_dim(x, 1, pair.lower, stage, micro, backward=True)
            self.stage.restore_activation(segment, micro, x)


def make_group(comm: Communicator, groups: Sequence[Sequence[int]]) -> Communicator | None:
    """Return the communicator of this rank's group, one of the lists of ranks ``groups``; None if
    it is in none or alone in it. Every rank must call this with the same groups."""
    own = None
    for group in groups:
        if len(group) == 1:
            continue
        group_comm = comm if len(group) == comm.size else comm.subgroup(group)
        if group_comm is not None and comm.rank in group:
            own = group_comm
    return own
