"""One rank of a split model: its stages, its messages, and evaluation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dualml.backend.stage import Stage, Tensor, Values
from dualml.communicator import Communicator
from dualml.split.horizontal import ConjugatePair, Ring
from dualml.split.plan import SplitPlan
from dualml.split.positions import SHARED
from dualml.split.row import Row


class Rank(Row):
    """A rank of the pipeline, with everything that training and evaluation have in common.

    Attributes:
        last_stage: number of the model's last stage.
        lower: stage → whether its output is sent in the low-precision type.
    """

    def __init__(self, plan: SplitPlan, comm: Communicator, stage: Stage) -> None:
        super().__init__(plan, comm, stage)
        self.last = len(plan.stages) - 1
        self.lower = [self.mixed is not None and plan.lower(s) for s in range(self.last + 1)]

    def owner(self, stage: int, micro: int) -> int:
        """Return the rank of this replica and slice that processes a micro-batch in a stage."""
        return self.plan.owner(self.data, stage, self.tensor, micro)

    def shape(self, stage: int, size: int) -> tuple[int, ...]:
        """Return the shape of the message between a stage and the next one for ``size`` samples."""
        return (size, *self.plan.between(stage))

    def handed(self, values: Values, stage: int) -> Values:
        """Transfer the input of a stage in an evaluation to the device of that stage."""
        return values

    def to_receive(self, stage: int, size: int) -> Tensor:
        """Allocate a receive buffer for the message between a stage and the next one."""
        shape = self.shape(stage, size)
        if self.mixed is not None and self.lower[stage]:
            return self.mixed.to_receive(shape)
        return self.stage.empty(shape)

    # --- without a backward pass ------------------------------------------------------------------

    def infer(
        self, first: Callable[[], Tensor], rows: int
    ) -> tuple[Tensor | None, dict[str, tuple[Tensor, Any]]]:
        """Evaluate ``rows`` samples through the pipeline.

        Args:
            first: makes the samples' tensor; called on ranks of the first stage.
            rows: number of samples.

        Returns:
            The logits, None unless this rank has the last stage, and for every layer of this rank
                its output with (axis, blocks) of its slice, None if the output is whole.
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
            values = self.handed(values, stage)
            view, number, name = self.views[stage], 0, names[0]
            for item in view.items:
                if isinstance(item, Ring):
                    name = item.name
                    values = (*values[:-1], self.attended(item, values[-1], stage, 0)[0])
                    seen[name] = (values[-1], SHARED[self.plan.shared])
                    continue
                if isinstance(item, ConjugatePair):
                    values = self.communicate(item, values, stage, 0)
                    if item.kind in ("sum", "scatter"):
                        seen[name] = (values[-1], None if self.own is None else SHARED["sequence"])
                    continue
                values, outputs = self.stage.infer(view.segments[number], values)
                number += 1
                for (name, _), output in zip(item.layers, outputs, strict=True):
                    seen[name] = (output, item.split.get(name))
            if stage == self.last:
                logits = self.whole(values[-1], self.lower[stage])
            elif self.owner(stage + 1, 0) != self.rank:
                message = self.packed(values[-1], self.lower[stage])
                pending.append(self.comm.isend(message, self.owner(stage + 1, 0)))
        for sent in pending:
            sent.wait()
        return logits, seen
