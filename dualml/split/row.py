"""What a rank does with those that share layers or positions with it: its row of the mesh."""

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
    """A rank among those of its tensor parallel group.

    Attributes:
        views: stage → as this rank has it.
        row: the ranks that hold slices of the same layers, None where there is no other.
        slow: the handicap of a rank of the trial.
        now: the update at work.
        mixed: the stage, where it computes in a lower precision.
        own: which positions of (batch, positions, …) this rank has, where they are shared out.
        rings: layer → its attention to the keys and values of all ranks of the row.
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
        #: Layer and micro-batch → what goes into its backward pass.
        self.rounds: dict[tuple[str, int], Kept] = {}
        #: Segment and micro-batch → its own positions of what it took, to be collected again.
        self.few: dict[tuple[int, int], tuple[ConjugatePair, Tensor]] = {}
        self.rings = {item.name: self.ring(item) for item in items if isinstance(item, Ring)}

    def packed(self, x: Tensor, lower: bool) -> Tensor:
        """What may be of a lower type as it travels."""
        return self.mixed.packed(x) if self.mixed is not None and lower else x

    def unpacked(self, x: Tensor, lower: bool) -> Tensor:
        return self.mixed.unpacked(x) if self.mixed is not None and lower else x

    # --- inside a layer ---------------------------------------------------------------------------

    def communicate(self, pair: ConjugatePair, values: Values, stage: int, micro: int) -> Values:
        """Between two segments, forward."""
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
        """Between two segments, backward."""
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
        """The sum of every rank's ``x``; of a lower type it is made in float32, and then rounded:
        of terms that have been rounded that is one rounding more, whatever the number of ranks."""
        assert self.row is not None
        mixed = self.mixed if lower else None
        x = x if mixed is None else mixed.widened(x)
        with self.timeline.during("collective", stage, micro, backward, self.comm.nbytes(x)):
            x = self.summed(self.row, x)
        return x if mixed is None else mixed.rounded(x)

    def collected(
        self, x: Tensor, axis: int, lower: bool, stage: int, micro: int, *, backward: bool = False
    ) -> Tensor:
        """Every rank's ``x`` put together along an axis."""
        assert self.row is not None
        x = self.packed(x, lower)
        with self.timeline.during("collective", stage, micro, backward, self.comm.nbytes(x)):
            return self.gathered(self.row, x, axis, lower)

    def scattered(
        self, x: Tensor, lower: bool, stage: int, micro: int, *, backward: bool = False
    ) -> Tensor:
        """Of the sum of every rank's ``x`` one's own run of positions; of a lower type as `total`
        makes it."""
        assert self.row is not None
        mixed, group = self.mixed if lower else None, self.row
        x = x if mixed is None else mixed.widened(x)
        with self.timeline.during("collective", stage, micro, backward, self.comm.nbytes(x)):
            if self.slow is not None:
                size = self.comm.nbytes(x) // group.size
                pause((group.size - 1) * self.slow.transferring(self.rank, size, size, self.now))
            runs = [self.stage.cut(x, 1, part, group.size) for part in range(group.size)]
            flat = self.stage.concat(runs, 0).reshape(-1)  # parts of 1-D are what is dealt out
            x = group.reduce_scatter(flat).reshape(runs[0].shape)
        return x if mixed is None else mixed.rounded(x)

    def summed(self, group: Communicator, x: Tensor) -> Tensor:
        if self.slow is not None and self.slow.rank == self.rank:
            schedule = strategy("all_reduce").schedule(group.size)
            late = replace(self.slow, rank=group.rank)  # a schedule counts its group's ranks
            pause(late.schedule_delay(schedule, group.rank, group.nbytes(x), self.now))
        return group.all_reduce(x, inplace=True)

    def gathered(self, group: Communicator, x: Tensor, axis: int, lower: bool = False) -> Tensor:
        """Every rank's ``x`` put together, which is `packed` if it is of a lower type."""
        if self.slow is not None:
            size = group.nbytes(x)  # one slice goes out and one comes in, round the ring
            pause((group.size - 1) * self.slow.transferring(self.rank, size, size, self.now))
        parts = [self.unpacked(part, lower) for part in group.all_gather(x)]
        return self.stage.concat(parts, axis)

    # --- positions that ranks share out -----------------------------------------------------------

    def dealt(self, part: int) -> Piece:
        """Which positions of (batch, positions, …) a rank of the row has."""
        axis, blocks, mirrored = SHARED[self.plan.shared]
        return Piece((), axis, part, self.plan.mesh.tensor, blocks, mirrored)

    def taken(self, x: Tensor) -> Tensor:
        """One's own positions."""
        if self.own is None:
            return x
        n = self.own.parts * self.own.blocks
        return self.stage.concat([self.stage.cut(x, 1, i, n) for i in self.own.chunks()], 1)

    def whole(self, x: Tensor, lower: bool) -> Tensor:
        """All positions, of which every rank of the row has its own."""
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
        assert self.row is not None
        assert isinstance(self.stage, Attending)  # see `stage_of`
        whole = np.arange(item.layer.length)[None]
        places = replace(self.dealt(self.tensor), shape=whole.shape).take(whole)[0]
        return RingAttention(self.stage.attention(item.layer, places), self.row)

    def attended(self, item: Ring, x: Tensor, stage: int, micro: int) -> tuple[Tensor, Kept]:
        """What attention makes of one's own queries, keys and values; what it keeps."""
        during = partial(self.timeline.during, "collective", stage, micro, False)
        return self.rings[item.name].forward(x, during)

    # --- attention round a ring -------------------------------------------------------------------

    def round(self, item: Ring, x: Tensor, stage: int, micro: int) -> Tensor:
        """`attended`, of which the backward pass goes back."""
        y, self.rounds[item.name, micro] = self.attended(item, x, stage, micro)
        return y

    def round_back(self, item: Ring, flow: Tensor, stage: int, micro: int) -> Tensor:
        """From the gradient of what it gave to that of what it took."""
        during = partial(self.timeline.during, "collective", stage, micro, True)
        kept = self.rounds.pop((item.name, micro))
        return self.rings[item.name].backward(kept, flow, during)

    def held_here(self) -> int:
        """Bytes kept for backward passes beside those of the stage; what attention gave, the layer
        after it keeps."""
        kept = [one for q, kv, _, lse in self.rounds.values() for one in (q, kv, lse)]
        return sum(map(self.comm.nbytes, kept + [x for _, x in self.few.values()]))

    # --- what is collected again ------------------------------------------------------------------

    def forget(self, segment: int, micro: int) -> None:
        """Of what was collected for a segment, keep one's own positions alone."""
        if (segment, micro) in self.few:
            assert isinstance(self.stage, Regathering)  # see `stage_of`
            self.stage.forget(segment, micro)

    def remember(self, segment: int, micro: int, stage: int) -> None:
        """Collect it again."""
        if (segment, micro) in self.few:
            assert isinstance(self.stage, Regathering)  # see `stage_of`
            pair, x = self.few.pop((segment, micro))
            x = self.collected(x, 1, pair.lower, stage, micro, backward=True)
            self.stage.remember(segment, micro, x)


def group_of(comm: Communicator, groups: Sequence[Sequence[int]]) -> Communicator | None:
    """The communicator of this rank's group; every rank calls it with the same groups."""
    own = None
    for group in groups:
        if len(group) == 1:
            continue
        group_comm = comm if len(group) == comm.size else comm.subgroup(group)
        if group_comm is not None and comm.rank in group:
            own = group_comm
    return own
