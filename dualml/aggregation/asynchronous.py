"""Asynchronous parameter server: workers wait only for the server, not for one another."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from dualml.aggregation.base import Strategy
from dualml.aggregation.parallel import DataParallel
from dualml.aggregation.parameter_server import ParameterServer
from dualml.aggregation.settings import Aggregation
from dualml.backend import Array, Arrays, Trace
from dualml.backend.ability import Tensor
from dualml.errors import CommunicationError
from dualml.seeds import generator

POLL_S = 0.0005


class Asynchronous(DataParallel):
    """Data parallel training in which rank 0 serves the parameters and also works; every rank's
    gradient is an update of its own.

    A worker computes the gradient of its part of the batch at the parameters it pulled last, pushes
    it, and pulls the parameters after its update. Meanwhile others have updated them: the
    *staleness* of a gradient is the number of updates between the parameters it was computed at and
    its own update. If the server handles ranks in a ``planned`` order (each rank once per global
    batch, in an order drawn from the seed), the trajectory is the same on every backend and in the
    float64 reference. If it handles them as they arrive (``free``), the trajectory is not
    reproducible, but no rank waits for a slower one. All ranks catch up whenever the loss is read.

    Source: Dean et al. 2012, "Large Scale Distributed Deep Networks" (Downpour SGD), NeurIPS;
    staleness as in Ho et al. 2013, "More Effective Distributed ML via a Stale Synchronous Parallel
    Parameter Server", NeurIPS.

    Attributes:
        formulas: messages, bytes and time of a worker, as in `dualml.aggregation.Strategy`.
        update_log: one (step, rank, staleness) per update, in order; on rank 0 only.
    """

    formulas: ClassVar[tuple[str, ...]] = (r"m = 1", r"b = S", r"T = 2 ( \alpha + S \beta )")

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.served: list[tuple[int, int, int]] = []
        self.fetched = [0] * self.comm.size  # rank → update whose parameters it has
        self.steps = [0] * self.comm.size  # rank → global batches it has pushed
        self.stale: list[Tensor] = []  # what rank 0 computes at

    @property
    def free(self) -> bool:
        """Whether the server handles gradients as they arrive, in an order that is not
        reproducible."""
        return self.settings.arrival == "free"

    def strategy_of(self, settings: Aggregation) -> Strategy:
        """Return the synchronous server's strategy, whose messages per gradient are the same: the
        push and its answer are one round."""
        return ParameterServer()

    @property
    def by_message(self) -> bool:
        return True

    def compute(self, part: Array, factor: float) -> tuple[Any, list[Tensor]]:
        return self.work(part, factor) if self.comm.rank == 0 else super().compute(part, factor)

    def combine(self, gradients: list[Tensor], share: float) -> list[Tensor]:
        if self.comm.rank:
            self.deliver(gradients)
        elif self.free:
            self.apply(gradients, 0, self.now)
            self.serve_waiting()
        else:
            for rank in self.order(self.now):
                self.serve(int(rank), self.now, gradients)
        return gradients

    def finish(self, gradients: list[Tensor]) -> None:
        """Do nothing: the server has already applied every update."""

    def order(self, step: int) -> Array:
        """Return the planned order in which the server handles the ranks in this global batch,
        (n,)."""
        return generator(self.seed, "arrival", step).permutation(self.comm.size)

    # --- worker -----------------------------------------------------------------------------------

    def deliver(self, gradients: Sequence[Tensor]) -> None:
        """Push the gradient to the server and pull the parameters after its update."""
        if self.free:
            self.comm.place.board.post(self.key(self.comm.rank), str(self.now))
        for g in gradients:
            self.comm.exchange({0: g}, {})
        fresh = [self.comm.exchange({}, {0: self.comm.empty_like(g)})[0] for g in gradients]
        self.pieces.assign(fresh)

    def key(self, rank: int) -> str:
        """Return the store key under which a worker announces its gradient."""
        return f"ready.{self.comm.place.key}.{self.comm.generation}.{rank}"

    # --- server -----------------------------------------------------------------------------------

    def work(self, part: Array, factor: float) -> tuple[Any, list[Tensor]]:
        """Compute the server's own gradient at the parameters of its last update; return the lazy
        loss and the gradient."""
        now = self.pieces.parameters()
        self.pieces.assign(self.stale or now)
        loss, gradients = self.pieces.gradient(part, factor)
        own = [self.comm.copy(g) for g in gradients]
        self.pieces.assign(now)
        return loss, own

    def serve(self, rank: int, step: int, own: Sequence[Tensor] = ()) -> None:
        """Apply the gradient of ``rank`` as one update and send it the new parameters."""
        if rank == 0:
            self.apply(own, 0, step)
            return
        like = self.stale or self.pieces.parameters()
        got = [self.comm.exchange({}, {rank: self.comm.empty_like(p)})[rank] for p in like]
        self.apply(got, rank, step)
        for p in self.pieces.parameters():
            self.comm.exchange({rank: p}, {})

    def apply(self, gradients: Sequence[Tensor], rank: int, step: int) -> None:
        """Apply the gradient of ``rank`` from global batch ``step`` as the next update and log its
        staleness."""
        version = len(self.served) + self.before
        self.served.append((step, rank, version - self.fetched[rank]))
        self.pieces.update(gradients, version + 1)
        self.fetched[rank], self.steps[rank] = version + 1, step
        if rank == 0:
            self.stale = self.pieces.parameters()

    def serve_waiting(self) -> bool:
        """Serve every worker that has announced a gradient; return whether there was one."""
        before = len(self.served)
        for rank in range(1, self.comm.size):
            announced = int(self.comm.place.board.read(self.key(rank)) or 0)
            if announced > self.steps[rank]:
                self.serve(rank, announced)
        return len(self.served) > before

    def catch_up(self, step: int) -> None:
        """Serve until every worker has pushed its gradient of ``step``."""
        last = time.monotonic()
        while any(done < step for done in self.steps):
            if self.serve_waiting():
                last = time.monotonic()
            elif time.monotonic() - last > self.comm.place.timeout:
                late = [r for r, done in enumerate(self.steps) if done < step]
                raise CommunicationError(f"no gradient in {self.comm.place.timeout:g} s of rank "
                                         f"{', '.join(map(str, late))}")  # fmt: skip
            else:
                time.sleep(POLL_S)

    def buffers(self) -> int:
        """Return the bytes of buffers, including the stale parameters that rank 0 keeps."""
        return super().buffers() + sum(map(self.comm.nbytes, self.stale))

    # --- traces and evaluation --------------------------------------------------------------------

    def own_gradient(self, batch: Array | Sequence[Array]) -> Arrays:
        """Return no gradient: there is no sum that it enters, and `trace` returns it."""
        return {}

    def read(self, lazy: Sequence[tuple[Any, float]]) -> Array:
        if self.free and self.comm.rank == 0:
            with self.slow_messages():
                self.catch_up(self.now)
        return super().read(lazy)

    #: Rank 0 has the parameters, the others those they pulled last.
    alike = False

    def trace(self, batch: Array | Sequence[Array], probe: Array) -> Trace:
        """Return the trace of the batch; its gradient is the one that this rank would push next."""
        part, _, factor = self.deal(batch)
        _, gradients = self.work(part, factor)
        return Trace(*self.look(batch, probe), 0.0, dict(self.pieces.named(gradients)))

    def state(self) -> dict[str, Arrays]:
        held = {f"bucket{i}": self.comm.numpy(p) for i, p in enumerate(self.stale)}
        counts = {"fetched": np.array(self.fetched), "steps": np.array(self.steps)}
        return {**self.training.state(), "stale": held, "counts": counts}

    def load(self, weights: Mapping[str, Array], state: Mapping[str, Arrays], step: int) -> None:
        if self.free and self.comm.rank == 0:
            self.catch_up(self.now)  # no gradient may be pending now
        self.now = step
        state = dict(state)
        held, counts = state.pop("stale", {}), state.pop("counts", {})
        n = self.comm.size
        self.training.load(weights, state, step * n)
        self.stale = [self.comm.tensor(held[f"bucket{i}"]) for i in range(len(held))]
        self.fetched = [int(v) for v in counts.get("fetched", [0] * n)]
        self.steps = [int(v) for v in counts.get("steps", [0] * n)]
        self.before = step * n - len(self.served)
        if step == 0:
            self.comm.generation += 1
            self.times.clear()
            self.served, self.before = [], 0

    before = 0  # updates applied before the first one in the log


def staleness(served: Sequence[tuple[int, int, int]], size: int) -> dict[str, Any]:
    """Return the mean and maximum staleness of all gradients, and the mean of each rank's."""
    every = [s for _, _, s in served] or [0]
    ranks = [[s for _, rank, s in served if rank == r] or [0] for r in range(size)]
    means = [float(np.mean(r)) for r in ranks]
    return {"mean": float(np.mean(every)), "max": max(every), "ranks": means}
