"""One rank of a split model: its stages, the ranks it shares layers with, and how it evaluates."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from dualml.aggregation import strategy
from dualml.aggregation.slow import Slow, pause
from dualml.backend import MixedStage
from dualml.backend.stage import Stage, Tensor, Values
from dualml.communicator import Communicator
from dualml.split.horizontal import ConjugatePair
from dualml.split.plan import SplitPlan
from dualml.split.timeline import Timeline


class Rank:
    """What a rank does whether it trains or evaluates.

    Attributes:
        views: stage → as this rank has it.
        row: the ranks that hold slices of the same layers, None where there is no other.
        slow: the handicap of a rank of the trial.
        now: the update at work.
        mixed: the stage, where it computes in a lower precision.
        lower: stage → whether what it sends to the next one is of the lower type.
    """

    def __init__(self, plan: SplitPlan, comm: Communicator, stage: Stage) -> None:
        self.plan, self.comm, self.stage, self.rank = plan, comm, stage, comm.rank
        self.data, _, self.tensor = plan.mesh.coordinates(self.rank)
        self.views = {view.stage: view for view in plan.views(self.rank)[0]}
        self.last, self.shapes = len(plan.stages) - 1, plan.spec.shapes()
        self.row = group_of(comm, plan.mesh.tensor_groups())
        self.timeline, self.now = Timeline(), 0
        self.slow: Slow | None = None
        self.mixed: MixedStage | None = None
        if isinstance(stage, MixedStage) and stage.lower:
            self.mixed = stage
        self.lower = [self.mixed is not None and plan.lower(s) for s in range(self.last + 1)]

    def owner(self, stage: int, micro: int) -> int:
        return self.plan.owner(self.data, stage, self.tensor, micro)

    def shape(self, stage: int, size: int) -> tuple[int, ...]:
        """Of the message between a stage and the next one."""
        return (size, *self.shapes[self.plan.stages[stage][-1]])

    def packed(self, x: Tensor, lower: bool) -> Tensor:
        """What may be of a lower type as it travels."""
        return self.mixed.packed(x) if self.mixed is not None and lower else x

    def unpacked(self, x: Tensor, lower: bool) -> Tensor:
        return self.mixed.unpacked(x) if self.mixed is not None and lower else x

    def to_receive(self, stage: int, size: int) -> Tensor:
        """A buffer for the message between a stage and the next one."""
        shape = self.shape(stage, size)
        if self.mixed is not None and self.lower[stage]:
            return self.mixed.to_receive(shape)
        return self.stage.empty(shape)

    # --- inside a layer ---------------------------------------------------------------------------

    def communicate(self, pair: ConjugatePair, values: Values, stage: int, micro: int) -> Values:
        """Between two segments, forward."""
        top = values[-1]
        if pair.kind == "copy":
            return values
        assert self.row is not None
        if pair.kind == "sum":
            top = self.total(top, pair.lower, stage, micro)
        else:
            top = self.packed(top, pair.lower)
            with self.timeline.during("collective", stage, micro, False, self.comm.nbytes(top)):
                top = self.gathered(self.row, top, pair.axis, pair.lower)
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

    # --- without a backward pass ------------------------------------------------------------------

    def infer(
        self, first: Callable[[], Tensor], rows: int
    ) -> tuple[Tensor | None, dict[str, tuple[Tensor, Any]]]:
        """The logits of ``rows`` samples on the ranks of the last stage, and of every layer of this
        rank the output with (axis, blocks) of its slice, None where it is whole.

        Args:
            first: makes the samples' tensor, where the first stage is here.
        """
        seen: dict[str, tuple[Tensor, Any]] = {}
        logits, pending = None, []
        values: Values = ()
        for stage, names in enumerate(self.plan.stages):
            if stage not in self.views or self.owner(stage, 0) != self.rank:
                continue
            if stage == 0:
                values = (first(),)
            elif self.owner(stage - 1, 0) != self.rank:
                buffer = self.to_receive(stage - 1, rows)
                came = self.comm.irecv(buffer, self.owner(stage - 1, 0)).wait()
                values = (self.unpacked(came, self.lower[stage - 1]),)
            view, number, name = self.views[stage], 0, names[0]
            for item in view.items:
                if isinstance(item, ConjugatePair):
                    values = self.communicate(item, values, stage, 0)
                    if item.kind == "sum":
                        seen[name] = (values[-1], None)
                    continue
                values, outputs = self.stage.infer(view.segments[number], values)
                number += 1
                for (name, _), output in zip(item.layers, outputs, strict=True):
                    seen[name] = (output, item.split.get(name))
            if stage == self.last:
                logits = values[-1]
            elif self.owner(stage + 1, 0) != self.rank:
                message = self.packed(values[-1], self.lower[stage])
                pending.append(self.comm.isend(message, self.owner(stage + 1, 0)))
        for sent in pending:
            sent.wait()
        return logits, seen


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
