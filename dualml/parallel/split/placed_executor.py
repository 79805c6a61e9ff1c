"""Executor of a process that holds all stages of a model, each on one of its devices."""

from __future__ import annotations

from dualml.algorithms.communicator import Communicator
from dualml.backend import PlacedStage
from dualml.backend.stage import Stage, Tensor, Values
from dualml.parallel.split.executor import Executor, Index
from dualml.parallel.split.plan import SplitPlan


class PlacedExecutor(Executor):
    """An `Executor` whose stages pass values from device to device within one process."""

    def __init__(self, plan: SplitPlan, comm: Communicator, stage: Stage) -> None:
        super().__init__(plan, comm, stage)
        assert isinstance(stage, PlacedStage)  # checked by `make_stage`
        self.placed: PlacedStage = stage

    def begin(self, batch: Index, step: int) -> None:
        """Begin an update as `Executor.begin` does and announce the number of the last micro-batch
        that has samples to the stage."""
        super().begin(batch, step)
        self.placed.expect_last(sum(len(part) > 0 for part in self.micro_batches) - 1)

    def send(self, kind: str, stage: int, micro: int, x: Tensor, peer: int) -> None:
        """Transfer the value ``x`` that ``stage`` produced to the device of the next stage
        (``kind`` ``F``), or of the previous one (``B``), for `receive` there; on the same device it
        is passed on without a copy."""
        other = stage - 1 if kind == "B" else stage + 1
        if not self.plan.crosses(stage, other):
            super().send(kind, stage, micro, x, peer)
            return
        with self.timeline.record("send", stage, micro, kind == "B", self.comm.nbytes(x)):
            moved = self.placed.transfer(x, self.views[other].segments[0])
            self.inbox.send((kind, stage, micro), moved, peer)

    def to_stage_device(self, values: Values, stage: int) -> Values:
        """Return the input of a stage in an evaluation on the device of that stage; unchanged if
        the previous stage lies there, too."""
        if not stage or not self.plan.crosses(stage - 1, stage):
            return values
        segment = self.views[stage].segments[0]
        return tuple(self.placed.transfer(value, segment) for value in values)

    def reduce(self) -> None:
        """All-reduce gradients as `Executor.reduce` does, unless the framework's data-parallel
        wrapper has already summed them."""
        if not self.placed.sums_by:
            super().reduce()
