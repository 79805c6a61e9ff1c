"""Collectives of a rank with the ranks that share its layers or positions: its tensor-parallel
group."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from dualml.aggregation import strategy
from dualml.aggregation.slow import Slow, pause
from dualml.backend import Attending, MixedStage, Regathering
from dualml.backend.stage import Stage, Tensor, Values
from dualml.communicator import Communicator
from dualml.split.horizontal import ConjugatePair, Ring
from dualml.split.pieces import Piece
from dualml.split.plan import SplitPlan
from dualml.split.positions import SHARED
from dualml.split.ring import Kept, RingAttention
from dualml.split.timeline import Timeline


class Row:
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
        self.data, _, self.tensor = plan.mesh.coordinates(self.rank)
        self.views = {view.stage: view for view in plan.views(self.rank)[0]}
        self.row = group_of(comm, plan.mesh.tensor_groups())
        self.timeline, self.now = Timeline(), 0
        self.slow: Slow | None = None
        self.mixed: MixedStage | None = None
        if isinstance(stage, MixedStage) and stage.lower:
            self.mixed = stage
        self.own = self.dealt(self.tensor) if plan.shared else None
        items = [item for view in self.views.values() for item in view.items]
        #: Layer and micro-batch → tensors saved for its backward pass.
        self.rounds: dict[tuple[str, int], Kept] = {}
        #: Segment and micro-batch → local positions of its input, to be gathered again.
        self.few: dict[tuple[int, int], tuple[ConjugatePair, Tensor]] = {}
        self.rings = {item.name: self.ring(item) for item in items if isinstance(item, Ring)}

    def packed(self, x: Tensor, lower: bool) -> Tensor:
        """Return a tensor in its wire type: low precision if ``lower``, unchanged otherwise."""
        return self.mixed.packed(x) if self.mixed is not None and lower else x

    def unpacked(self, x: Tensor, lower: bool) -> Tensor:
        """Return a received tensor in its compute type; the reverse of `to_wire`."""
        return self.mixed.unpacked(x) if self.mixed is not None and lower else x

    # --- inside a layer ---------------------------------------------------------------------------

    def communicate(self, pair: ConjugatePair, values: Values, stage: int, micro: int) -> Values:
        """Apply the forward communication of an operator between two segments."""
        top = values[-1]
        if pair.kind == "copy":
            return values
        if pair.kind == "take":
            top = self.taken(top)
        elif pair.kind == "sum":
            top = self.total(top, pair.lower, stage, micro)
        elif pair.kind == "scatter":
            top = self.scattered(top, pair.lower, stage, micro)
        else:
            axis = pair.axis if pair.kind == "gather" else 1
            top = self.collected(top, axis, pair.lower, stage, micro)
        return (*values[:-1], top)

    def communicate_back(
        self, pair: ConjugatePair, gradients: Values, stage: int, micro: int
    ) -> Values:
        """Apply the backward communication of an operator between two segments."""
        top = gradients[-1]
        if pair.kind == "sum":
            return gradients
        assert self.row is not None
        if pair.kind == "gather":
            top = self.stage.cut(top, pair.axis, self.row.rank, self.row.size)
        elif pair.kind == "collect":
            top = self.scattered(top, pair.lower, stage, micro, backward=True)
        elif pair.kind == "scatter":
            top = self.collected(top, 1, pair.lower, stage, micro, backward=True)
        else:
            top = self.total(top, pair.lower, stage, micro, backward=True)
        return (*gradients[:-1], top)

    def total(
        self, x: Tensor, lower: bool, stage: int, micro: int, *, backward: bool = False
    ) -> Tensor:
        """All-reduce ``x`` over the group. A low-precision ``x`` is summed in float32 and then
        rounded, which adds one rounding for any number of ranks."""
        assert self.row is not None
        mixed = self.mixed if lower else None
        x = x if mixed is None else mixed.widened(x)
        with self.timeline.during("collective", stage, micro, backward, self.comm.nbytes(x)):
            x = self.summed(self.row, x)
        return x if mixed is None else mixed.rounded(x)

    def collected(
        self, x: Tensor, axis: int, lower: bool, stage: int, micro: int, *, backward: bool = False
    ) -> Tensor:
        """All-gather ``x`` along an axis, sent in the low-precision type if ``lower``."""
        assert self.row is not None
        x = self.packed(x, lower)
        with self.timeline.during("collective", stage, micro, backward, self.comm.nbytes(x)):
            return self.gathered(self.row, x, axis, lower)

    def scattered(
        self, x: Tensor, lower: bool, stage: int, micro: int, *, backward: bool = False
    ) -> Tensor:
        """Reduce-scatter ``x`` along the positions: return this rank's range of positions of the
        sum. A low-precision ``x`` is summed in float32 and then rounded."""
        assert self.row is not None
        mixed, group = self.mixed if lower else None, self.row
        x = x if mixed is None else mixed.widened(x)
        with self.timeline.during("collective", stage, micro, backward, self.comm.nbytes(x)):
            if self.slow is not None:
                size = self.comm.nbytes(x) // group.size
                pause((group.size - 1) * self.slow.transferring(self.rank, size, size, self.now))
            runs = [self.stage.cut(x, 1, part, group.size) for part in range(group.size)]
            flat = self.stage.concat(runs, 0).reshape(-1)  # reduce_scatter splits a 1-D tensor
            x = group.reduce_scatter(flat).reshape(runs[0].shape)
        return x if mixed is None else mixed.rounded(x)

    def summed(self, group: Communicator, x: Tensor) -> Tensor:
        """All-reduce ``x`` in place, with the delay of the simulated straggler."""
        if self.slow is not None and self.slow.rank == self.rank:
            schedule = strategy("all_reduce").schedule(group.size)
            late = replace(self.slow, rank=group.rank)  # a schedule uses ranks of the group
            pause(late.schedule_delay(schedule, group.rank, group.nbytes(x), self.now))
        return group.all_reduce(x, inplace=True)

    def gathered(self, group: Communicator, x: Tensor, axis: int, lower: bool = False) -> Tensor:
        """All-gather ``x`` and concatenate along an axis; ``x`` is in its wire type if
        ``lower``."""
        if self.slow is not None:
            size = group.nbytes(x)  # a ring sends and receives one slice per step
            pause((group.size - 1) * self.slow.transferring(self.rank, size, size, self.now))
        parts = [self.unpacked(part, lower) for part in group.all_gather(x)]
        return self.stage.concat(parts, axis)

    # --- positions that ranks share out -----------------------------------------------------------

    def dealt(self, part: int) -> Piece:
        """Return which positions of (batch, positions, …) rank ``part`` of the group has."""
        axis, blocks, mirrored = SHARED[self.plan.shared]
        return Piece((), axis, part, self.plan.mesh.tensor, blocks, mirrored)

    def taken(self, x: Tensor) -> Tensor:
        """Return the local positions of the full tensor ``x``."""
        if self.own is None:
            return x
        n = self.own.parts * self.own.blocks
        return self.stage.concat([self.stage.cut(x, 1, i, n) for i in self.own.chunks()], 1)

    def whole(self, x: Tensor, lower: bool) -> Tensor:
        """All-gather the position-sharded tensor ``x`` along its position axis and restore the
        order."""
        if self.own is None:
            return x
        assert self.row is not None
        chunks, blocks = dict[int, Tensor](), self.own.blocks
        for part, one in enumerate(self.row.all_gather(self.packed(x, lower))):
            one = self.unpacked(one, lower)
            for number, i in enumerate(self.dealt(part).chunks()):
                chunks[i] = self.stage.cut(one, 1, number, blocks)
        return self.stage.concat([chunks[i] for i in sorted(chunks)], 1)

    def ring(self, item: Ring) -> RingAttention:
        """Make the ring attention of a layer for this rank's positions."""
        assert self.row is not None
        assert isinstance(self.stage, Attending)  # checked by `make_stage`
        whole = np.arange(item.layer.length)[None]
        places = replace(self.dealt(self.tensor), shape=whole.shape).take(whole)[0]
        return RingAttention(self.stage.attention(item.layer, places), self.row)

    def attended(self, item: Ring, x: Tensor, stage: int, micro: int) -> tuple[Tensor, Kept]:
        """Run ring attention on the local queries, keys and values; return the output and the saved
        tensors."""
        during = partial(self.timeline.during, "collective", stage, micro, False)
        return self.rings[item.name].forward(x, during)

    # --- attention round a ring -------------------------------------------------------------------

    def round(self, item: Ring, x: Tensor, stage: int, micro: int) -> Tensor:
        """Run the forward pass of ring attention and save its tensors for the backward pass."""
        y, self.rounds[item.name, micro] = self.attended(item, x, stage, micro)
        return y

    def round_back(self, item: Ring, flow: Tensor, stage: int, micro: int) -> Tensor:
        """Run the backward pass of ring attention: return the gradient of its input from that of
        its output."""
        during = partial(self.timeline.during, "collective", stage, micro, True)
        kept = self.rounds.pop((item.name, micro))
        return self.rings[item.name].backward(kept, flow, during)

    def held_here(self) -> int:
        """Return the bytes saved for backward passes in addition to those of the stage. The output
        of attention is not counted, because the next layer saves it."""
        kept = [one for q, kv, _, lse in self.rounds.values() for one in (q, kv, lse)]
        return sum(map(self.comm.nbytes, kept + [x for _, x in self.few.values()]))

    # --- what is collected again ------------------------------------------------------------------

    def forget(self, segment: int, micro: int) -> None:
        """Free the gathered input of a segment and keep only the local positions of it."""
        if (segment, micro) in self.few:
            assert isinstance(self.stage, Regathering)  # checked by `make_stage`
            self.stage.forget(segment, micro)

    def remember(self, segment: int, micro: int, stage: int) -> None:
        """All-gather the input of a segment again before its backward pass."""
        if (segment, micro) in self.few:
            assert isinstance(self.stage, Regathering)  # checked by `make_stage`
            pair, x = self.few.pop((segment, micro))
            x = self.collected(x, 1, pair.lower, stage, micro, backward=True)
            self.stage.remember(segment, micro, x)


def group_of(comm: Communicator, groups: Sequence[Sequence[int]]) -> Communicator | None:
    """Return the communicator of this rank's group, None if it has none. Every rank must call this
    with the same groups."""
    own = None
    for group in groups:
        if len(group) == 1:
            continue
        group_comm = comm if len(group) == comm.size else comm.subgroup(group)
        if group_comm is not None and comm.rank in group:
            own = group_comm
    return own
