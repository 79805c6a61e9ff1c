"""Asynchronous pipeline training: several trainer ranks share one parameter server.

For every batch, all trainers receive their micro-batches at the same time. The server applies the
trainers' gradients one after the other, in an order drawn from the seed, so all gradients but the
first were computed with parameters that have been updated since. Trainers hold copies of the stages
that they share and apply the same updates to them in the same order.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from dualml.backend.stage import Arrays, Tensor
from dualml.common.seeds import make_generator
from dualml.parallel.split.executor import Executor, Index
from dualml.parallel.split.placed_executor import PlacedExecutor
from dualml.parallel.split.schedule import backward, forward


class AsynchronousExecutor(Executor):
    """An `Executor` that makes one update per trainer for every batch."""

    def run(self, batch: Index, step: int) -> list[tuple[Any, float]]:
        """Compute the gradient of every trainer for the samples ``batch`` of update ``step``,
        without an update. Return (lazy loss, share of the batch) for each of this rank's
        micro-batches with samples on ranks of the last stage, otherwise an empty list."""
        trainers = self.plan.trainers
        self.order = make_generator(self.seed, "arrival", step).permutation(trainers).tolist()
        self.begin(batch, step)
        losses, sums = list[Any](), dict[int, Tensor]()
        own = {(action.stage, action.micro) for action in self.program}
        stages = range(len(self.plan.stages))
        program = [forward(s, k) for s in stages for k in self.order]
        program += [backward(s, k) for s in reversed(stages) for k in self.order]
        for action in program:
            if (action.stage, action.micro) not in own:
                continue
            losses.append(self.run_action(action))
            if action.kind == "B":
                flat = self.comm.copy(self.stage.flatten_gradients())
                known = sums.get(action.micro)
                sums[action.micro] = (
                    flat if known is None else self.comm.combine(known, flat, "sum")
                )
                zeros = np.zeros(tuple(flat.shape), self.comm.dtype(flat))
                self.stage.assign_flat_gradients(self.comm.tensor(zeros))
        self.end()
        if self.dp_group is not None:  # gather the gradients of all trainers
            with self.timeline.record("reduce"):
                every = self.dp_group.all_gather(sums[self.rank - 1])
            sums = dict(enumerate(every))
        self.gradients = [sums[k] for k in self.order]
        total = self.comm.copy(self.gradients[0])
        for flat in self.gradients[1:]:
            total = self.comm.combine(total, flat, "sum")
        self.stage.assign_flat_gradients(total)  # the batch's gradient, for traces
        return [loss for loss in losses if loss is not None]

    def buffer_bytes(self) -> int:
        """Return the bytes of the stored gradients, one per trainer."""
        return sum(map(self.comm.nbytes, self.gradients))

    def update(self, step: int) -> None:
        """Apply the gradients of the batch, one per trainer, as separate optimizer updates, in the
        order drawn for it; update ``step`` of the trial (from 1) is as many optimizer updates as
        there are trainers."""
        with self.timeline.record("update"):
            first = (step - 1) * self.plan.trainers + 1
            for number, flat in enumerate(self.gradients, start=first):
                self.stage.assign_flat_gradients(flat)
                self.stage.update(number)

    def load(self, weights: Arrays, state: Mapping[str, Arrays], step: int) -> None:
        """Load weights and state after the update ``step`` of the trial, which is one optimizer
        update per trainer."""
        super().load(weights, state, step * self.plan.trainers)


def executor_class(arrival: str, engine: str = "messages") -> type[Executor]:
    """Return `PlacedExecutor` for the engine ``devices``, otherwise `AsynchronousExecutor` for the
    arrival ``asynchronous``, otherwise `Executor`."""
    if engine == "devices":
        return PlacedExecutor
    return AsynchronousExecutor if arrival == "asynchronous" else Executor
