"""One rank of a split model: its stages, its messages, and evaluation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dualml.algorithms.communicator import Communicator
from dualml.backend.stage import Stage, Tensor, Values
from dualml.parallel.split.plan import SplitPlan
from dualml.parallel.split.positions import POSITION_SLICES
from dualml.parallel.split.tensor_parallel import ParallelOp, RingAttentionOp
from dualml.parallel.split.tensor_parallel_rank import TensorParallelRank


class PipelineRank(TensorParallelRank):
    """A rank of the pipeline, with everything that training and evaluation have in common.

    Attributes:
        last_stage: number of the model's last stage.
        lower: stage → whether its output is sent in the low-precision type.
    """

    def __init__(self, plan: SplitPlan, comm: Communicator, stage: Stage) -> None:
        super().__init__(plan, comm, stage)
        self.last_stage = len(plan.stages) - 1
        self.lower = [
            self.mixed is not None and plan.sends_low_precision(s)
            for s in range(self.last_stage + 1)
        ]

    def owner_rank(self, stage: int, micro: int) -> int:
        """Return the rank, of the same replica and tensor slice as this one, that processes a
        micro-batch in a stage."""
        return self.plan.owner(self.dp_rank, stage, self.tp_rank, micro)

    def message_shape(self, stage: int, size: int) -> tuple[int, ...]:
        """Return the shape of the message between ``stage`` and the next one for ``size`` samples,
        which come first."""
        return (size, *self.plan.activation_shape(stage))

    def to_stage_device(self, values: Values, stage: int) -> Values:
        """Return the input of a stage in an evaluation on the device of that stage; here ``values``
        itself, because a rank has one device."""
        return values

    def receive_buffer(self, stage: int, size: int) -> Tensor:
        """Allocate a receive buffer for the message between ``stage`` and the next one, in either
        direction, for ``size`` samples."""
        shape = self.message_shape(stage, size)
        if self.mixed is not None and self.lower[stage]:
            return self.mixed.recv_buffer(shape)
        return self.stage.empty(shape)

    # --- without a backward pass ------------------------------------------------------------------

    def infer(
        self, first: Callable[[], Tensor], rows: int
    ) -> tuple[Tensor | None, dict[str, tuple[Tensor, Any]]]:
        """Evaluate ``rows`` samples through the pipeline; of trainers that share a stage only the
        first takes part, and the others return None and an empty dict.

        Args:
            first: makes the samples' tensor; called on ranks of the first stage.
            rows: number of samples.

        Returns:
            The logits, None unless this rank has the last stage, and for every layer of this rank
                its output with the `OutputSplit` of its slice, None if the output is whole.
        """
        seen: dict[str, tuple[Tensor, Any]] = {}
        logits, pending = None, []
        values: Values = ()
        for stage, names in enumerate(self.plan.stages):
            if stage not in self.views or self.owner_rank(stage, 0) != self.rank:
                continue
            if stage == 0:
                values = (first(),)
            elif self.owner_rank(stage - 1, 0) != self.rank:
                buffer = self.receive_buffer(stage - 1, rows)
                came = self.comm.irecv(buffer, self.owner_rank(stage - 1, 0)).wait()
                values = (self.from_wire(came, self.lower[stage - 1]),)
            values = self.to_stage_device(values, stage)
            view, number, name = self.views[stage], 0, names[0]
            for item in view.items:
                if isinstance(item, RingAttentionOp):
                    name = item.name
                    values = (*values[:-1], self.attend_over_ring(item, values[-1], stage, 0)[0])
                    seen[name] = (values[-1], POSITION_SLICES[self.plan.shared])
                    continue
                if isinstance(item, ParallelOp):
                    values = self.communicate(item, values, stage, 0)
                    if item.kind in ("sum", "scatter"):
                        seen[name] = (
                            values[-1],
                            None if self.own_positions is None else POSITION_SLICES["sequence"],
                        )
                    continue
                values, outputs = self.stage.infer(view.segments[number], values)
                number += 1
                for (name, _), output in zip(item.layers, outputs, strict=True):
                    seen[name] = (output, item.split.get(name))
            if stage == self.last_stage:
                logits = self.gather_sequence(values[-1], self.lower[stage])
            elif self.owner_rank(stage + 1, 0) != self.rank:
                message = self.to_wire(values[-1], self.lower[stage])
                pending.append(self.comm.isend(message, self.owner_rank(stage + 1, 0)))
        for sent in pending:
            sent.wait()
        return logits, seen
