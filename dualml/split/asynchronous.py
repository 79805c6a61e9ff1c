"""Several trainers on one server that does not wait for all of them before it updates.

Every batch the trainers get their parts at once. The server makes an update of each trainer's
gradient, one after the other in an order drawn from the seed: all but the first were computed with
parameters that have been updated since. The trainers hold copies of the stages they share, and make
the same updates of them in the same order.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from dualml.backend.stage import Arrays, Tensor
from dualml.seeds import generator
from dualml.split.executor import Executor, Index
from dualml.split.placed import PlacedExecutor
from dualml.split.schedule import backward, forward


class Asynchronous(Executor):
    """An `Executor` that makes as many updates of a batch as there are trainers."""

    def run(self, batch: Index, step: int) -> list[tuple[Any, float]]:
        trainers = self.plan.trainers
        self.order = generator(self.seed, "arrival", step).permutation(trainers).tolist()
        self.begin(batch, step)
        losses, sums = list[Any](), dict[int, Tensor]()
        own = {(action.stage, action.micro) for action in self.program}
        stages = range(len(self.plan.stages))
        program = [forward(s, k) for s in stages for k in self.order]
        program += [backward(s, k) for s in reversed(stages) for k in self.order]
        for action in program:
            if (action.stage, action.micro) not in own:
                continue
            losses.append(self.act(action))
            if action.kind == "B":
                flat = self.comm.copy(self.stage.flat())
                known = sums.get(action.micro)
                sums[action.micro] = (
                    flat if known is None else self.comm.combine(known, flat, "sum")
                )
                zeros = np.zeros(tuple(flat.shape), self.comm.dtype(flat))
                self.stage.assign_flat(self.comm.tensor(zeros))
        self.end()
        if self.same is not None:  # the trainers tell one another
            with self.timeline.during("reduce"):
                every = self.same.all_gather(sums[self.rank - 1])
            sums = dict(enumerate(every))
        self.gradients = [sums[k] for k in self.order]
        total = self.comm.copy(self.gradients[0])
        for flat in self.gradients[1:]:
            total = self.comm.combine(total, flat, "sum")
        self.stage.assign_flat(total)  # the batch's gradient, for those who look
        return [loss for loss in losses if loss is not None]

    def buffers(self) -> int:
        """Of every trainer's gradient, each an update."""
        return sum(map(self.comm.nbytes, self.gradients))

    def update(self, step: int) -> None:
        """One after the other, in the order drawn."""
        with self.timeline.during("update"):
            first = (step - 1) * self.plan.trainers + 1
            for number, flat in enumerate(self.gradients, start=first):
                self.stage.assign_flat(flat)
                self.stage.update(number)

    def load(self, weights: Arrays, state: Mapping[str, Arrays], step: int) -> None:
        super().load(weights, state, step * self.plan.trainers)


def executor_class(arrival: str, engine: str = "messages") -> type[Executor]:
    """The executor of a split's ``arrival`` and ``engine``."""
    if engine == "devices":
        return PlacedExecutor
    return Asynchronous if arrival == "asynchronous" else Executor
