"""A split model as a `Training`: a trial works with it as with a whole one.

Every rank calls the same methods in the same order. Weights, gradients and optimizer state go in
and come out whole, under their canonical names.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from dualml.backend import Array, Arrays, Backend, Trace, batch_digest
from dualml.communicator import Communicator
from dualml.split.executor import Executor
from dualml.split.gather import joined, share, whole
from dualml.split.plan import SplitPlan
from dualml.split.stage import Stage


class SplitTraining:
    """See `dualml.backend.Training`.

    Args:
        x, y: the training data, for fingerprints of batches.
    """

    def __init__(
        self,
        backend: Backend,
        plan: SplitPlan,
        comm: Communicator,
        stage: Stage,
        x: Array,
        y: Array,
        executor: Executor,
    ) -> None:
        self.backend, self.plan, self.comm, self.stage = backend, plan, comm, stage
        self.x, self.y, self.executor = x, y, executor
        self.shapes = plan.spec.parameters()
        self.pieces = [plan.views(rank)[1] for rank in range(comm.size)]
        self.now = 0

    # --- one update -------------------------------------------------------------------------------

    def step(self, batch: Array, step: int) -> Any:
        """The lazy losses of this rank's micro-batches, None where it has not the last stage."""
        losses = self.executor.run(batch, step)
        self.executor.update(step)
        self.now = step
        return losses

    def read(self, lazy: Sequence[Any]) -> Array:
        """Mean losses of the batches, on every rank."""
        mine = np.zeros(len(lazy))
        if self.executor.tensor == 0 and any(lazy):
            there = [i for i, losses in enumerate(lazy) if losses]
            mine[there] = self.backend.read([self.stage.lazy(lazy[i]) for i in there])
        parts = self.comm.all_gather(self.comm.tensor(mine))
        total: Array = np.sum([self.comm.numpy(part) for part in parts], axis=0)
        return total

    # --- looking ------------------------------------------------------------------------------

    def trace(self, batch: Array, probe: Array) -> Trace:
        with self.executor.timeline.off():
            losses = self.executor.run(batch, self.now + 1)
        gradients = self.together(self.stage.gradients())
        self.stage.zero()
        loss = float(self.read([losses])[0])
        return Trace(*self.look(batch, probe), loss=loss, gradients=gradients)

    def look(self, batch: Array, probe: Array) -> tuple[str, Arrays]:
        with self.executor.timeline.off():
            _, seen = self.executor.infer(lambda: self.stage.samples(probe), len(probe))
        mine = {name: self.comm.numpy(output) for name, (output, _) in seen.items()}
        found: Arrays = {}
        ranks, tensor = share(self.comm, mine), self.plan.mesh.tensor
        splits = self.splits()
        for name, _ in self.plan.spec.layers:
            owner = next(r for r, outputs in enumerate(ranks) if name in outputs)
            if name in splits:
                group = range(owner - owner % tensor, owner - owner % tensor + tensor)
                found[name] = joined([ranks[r][name] for r in group], *splits[name])
            else:
                found[name] = ranks[owner][name]
        return batch_digest(*self.given(batch)), found

    def given(self, batch: Array) -> tuple[Array, Array]:
        return self.x[batch], self.y[batch]

    def splits(self) -> dict[str, tuple[int, int]]:
        """Layers whose output stays in slices."""
        found: dict[str, tuple[int, int]] = {}
        for rank in range(self.comm.size):
            for view in self.plan.views(rank)[0]:
                for item in view.items:
                    found |= getattr(item, "split", {})
        return found

    def evaluate(self, x: Array, y: Array) -> tuple[float, Array]:
        """Loss and predictions, from a rank that has the last stage."""
        with self.executor.timeline.off():
            logits, _ = self.executor.infer(lambda: self.stage.inputs(x), len(x))
        root = self.plan.owner(0, len(self.plan.stages) - 1, 0)
        told = np.zeros(1 + y.size)
        if self.comm.rank == root:
            loss, predicted = self.stage.score(logits, self.stage.targets(y))
            told[0], told[1:] = loss, predicted.ravel()
        told = self.comm.numpy(self.comm.broadcast(self.comm.tensor(told), root))
        return float(told[0]), told[1:].astype(np.int64).reshape(y.shape)

    # --- what it holds ----------------------------------------------------------------------------

    def together(self, mine: Mapping[str, Array]) -> Arrays:
        return whole(share(self.comm, mine), self.pieces, self.shapes)

    def weights(self) -> Arrays:
        return self.together(self.stage.weights())

    def state(self) -> dict[str, Arrays]:
        mine = self.stage.state()
        flat = {f"{slot}/{name}": a for slot, named in mine.items() for name, a in named.items()}
        ranks = share(self.comm, flat)
        slots = dict.fromkeys(key.split("/", 1)[0] for rank in ranks for key in rank)
        found = {}
        for slot in slots:
            parts = [
                {key.split("/", 1)[1]: a for key, a in rank.items() if key.startswith(f"{slot}/")}
                for rank in ranks
            ]
            found[slot] = whole(parts, self.pieces, self.shapes)
        return found

    def load(self, weights: Arrays, state: Mapping[str, Arrays], step: int) -> None:
        mine = self.pieces[self.comm.rank]

        def taken(arrays: Mapping[str, Array]) -> Arrays:
            return {name: piece.take(arrays[name]) for name, piece in mine.items()}

        own = {slot: taken(named) for slot, named in state.items()}
        self.executor.load(taken(weights), own, step)
        self.now = step
