"""Asynchronous parameter server: workers wait only for the server, not for one another."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from dualml.backend import Array, Arrays
from dualml.backend.capability import Tensor
from dualml.common.errors import CommunicationError
from dualml.common.seeds import make_generator
from dualml.parallel.aggregation.base import Strategy
from dualml.parallel.aggregation.parallel import DataParallel
from dualml.parallel.aggregation.parameter_server import ParameterServer
from dualml.parallel.aggregation.settings import Aggregation
from dualml.parallel.aggregation.staleness import StalenessContent, staleness_stats
from dualml.parallel.batch import Batch
from dualml.parallel.copies import WeightCopies

POLL_S = 0.0005


class AsyncParameterServer(DataParallel):
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
        formulas: messages, bytes and time of a worker, as in
            `dualml.parallel.aggregation.Strategy`.
        update_log: one (step, rank, staleness) per update, in order; on rank 0 only.
    """

    formulas: ClassVar[tuple[str, ...]] = (r"m = 1", r"b = S", r"T = 2 ( \alpha + S \beta )")
    keeps_replicas = False
    promise = "served"
    scored_by = "first"  # rank 0 has the parameters, the others those they pulled last

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.update_log: list[tuple[int, int, int]] = []
        self.pulled_versions = [0] * self.comm.size  # rank → update whose parameters it has
        self.steps = [0] * self.comm.size  # rank → global batches it has pushed
        self.stale_params: list[Tensor] = []  # what rank 0 computes at
        self.staleness: dict[str, StalenessContent] = {}
        self.nondeterministic = self.serves_on_arrival

    @property
    def serves_on_arrival(self) -> bool:
        """Whether the server handles gradients as they arrive, in an order that is not
        reproducible."""
        return self.settings.arrival == "free"

    def make_strategy(self, settings: Aggregation) -> Strategy:
        """Return the synchronous server's strategy, whatever the settings: its messages per
        gradient are the same, with push and answer as one round."""
        return ParameterServer()

    @property
    def has_separate_messages(self) -> bool:
        """True: every push and pull is a message of its own."""
        return True

    def compute(self, part: Array, factor: float) -> tuple[Any, list[Tensor]]:
        """Return this rank's lazy loss of the samples at ``part`` and its gradients times
        ``factor``, one tensor per bucket; workers compute them at the parameters they pulled last,
        rank 0 at those of its own last update."""
        return (
            self.compute_stale_gradient(part, factor)
            if self.comm.rank == 0
            else super().compute(part, factor)
        )

    def combine(self, gradients: list[Tensor], share: float) -> list[Tensor]:
        """Push the gradients to the server and pull its parameters. On rank 0, apply its own
        gradients and the workers': one of each in ``planned`` order, else all that have arrived.
        Return ``gradients`` unchanged."""
        if self.comm.rank:
            self.push_gradient(gradients)
        elif self.serves_on_arrival:
            self.apply_gradient(gradients, 0, self.step_count)
            self.serve_waiting()
        else:
            for rank in self.arrival_order(self.step_count):
                self.handle_push(int(rank), self.step_count, gradients)
        return gradients

    def finish(self, gradients: list[Tensor]) -> None:
        """Do nothing: the server has already applied every update."""

    def arrival_order(self, step: int) -> Array:
        """Return the planned order in which the server handles the ranks in global batch ``step``:
        a permutation of all n ranks, its own included, (n,), drawn from the seed."""
        return make_generator(self.seed, "arrival", step).permutation(self.comm.size)

    # --- worker -----------------------------------------------------------------------------------

    def push_gradient(self, gradients: Sequence[Tensor]) -> None:
        """Push this worker's gradient, one tensor per bucket, to the server, wait for the
        parameters after its update and make them this rank's. With ``free`` arrival, first announce
        the gradient in the store."""
        if self.serves_on_arrival:
            self.comm.context.store.set(self.announcement_key(self.comm.rank), str(self.step_count))
        for g in gradients:
            self.comm.exchange({0: g}, {})
        fresh = [self.comm.exchange({}, {0: self.comm.empty_like(g)})[0] for g in gradients]
        self.buckets.assign(fresh)

    def announcement_key(self, rank: int) -> str:
        """Return the key, in the key-value store of all ranks, under which worker ``rank`` sets the
        number of the global batch whose gradient it pushes next."""
        return f"ready.{self.comm.context.key}.{self.comm.generation}.{rank}"

    # --- server -----------------------------------------------------------------------------------

    def compute_stale_gradient(self, part: Array, factor: float) -> tuple[Any, list[Tensor]]:
        """Compute the server's own gradient at the parameters of its last update (before the first
        one: at the current ones), then restore the current ones; return the lazy loss and copies of
        the gradient, one tensor per bucket."""
        now = self.buckets.parameters()
        self.buckets.assign(self.stale_params or now)
        loss, gradients = self.buckets.gradient(part, factor)
        own = [self.comm.copy(g) for g in gradients]
        self.buckets.assign(now)
        return loss, own

    def handle_push(self, rank: int, step: int, own: Sequence[Tensor] = ()) -> None:
        """Wait for the gradient of ``rank`` from global batch ``step`` (from 1), apply it as one
        update and send that rank the new parameters; for rank 0 itself, apply its gradient ``own``
        without messages."""
        if rank == 0:
            self.apply_gradient(own, 0, step)
            return
        like = self.stale_params or self.buckets.parameters()
        got = [self.comm.exchange({}, {rank: self.comm.empty_like(p)})[rank] for p in like]
        self.apply_gradient(got, rank, step)
        for p in self.buckets.parameters():
            self.comm.exchange({rank: p}, {})

    def apply_gradient(self, gradients: Sequence[Tensor], rank: int, step: int) -> None:
        """Apply the gradient of ``rank`` from global batch ``step`` as the next update and log its
        staleness."""
        version = len(self.update_log) + self.version_offset
        self.update_log.append((step, rank, version - self.pulled_versions[rank]))
        self.buckets.update(gradients, version + 1)
        self.pulled_versions[rank], self.steps[rank] = version + 1, step
        if rank == 0:
            self.stale_params = self.buckets.parameters()

    def serve_waiting(self) -> bool:
        """Serve every worker whose announced gradient is not yet applied, without waiting for
        others; return whether there was one."""
        before = len(self.update_log)
        for rank in range(1, self.comm.size):
            announced = int(self.comm.context.store.get(self.announcement_key(rank)) or 0)
            if announced > self.steps[rank]:
                self.handle_push(rank, announced)
        return len(self.update_log) > before

    def catch_up(self, step: int) -> None:
        """Serve until every rank's gradient of global batch ``step`` is applied; raise
        `CommunicationError` if none arrives within the communicator's timeout."""
        last = time.monotonic()
        while any(done < step for done in self.steps):
            if self.serve_waiting():
                last = time.monotonic()
            elif time.monotonic() - last > self.comm.context.timeout:
                late = [r for r, done in enumerate(self.steps) if done < step]
                raise CommunicationError(
                    f"no gradient in {self.comm.context.timeout:g} s of rank "
                    f"{', '.join(map(str, late))}"
                )
            else:
                time.sleep(POLL_S)

    def buffer_bytes(self) -> int:
        """Return the bytes of buffers, including the stale parameters that rank 0 keeps."""
        return (super().buffer_bytes() or 0) + sum(map(self.comm.nbytes, self.stale_params))

    # --- traces and evaluation --------------------------------------------------------------------

    def local_gradient(self, batch: Batch) -> Arrays:
        """Return an empty dict: a gradient here enters no sum over ranks, and `trace` returns
        it."""
        return {}

    def mean_losses(self, lazy: Sequence[tuple[Any, float]]) -> Array:
        """Return the mean losses of the global batches, (updates,), on every rank, from each one's
        (lazy loss, share of the batch); with ``free`` arrival rank 0 first applies all outstanding
        gradients. All ranks call it."""
        if self.serves_on_arrival and self.comm.rank == 0:
            with self.delay_messages():
                self.catch_up(self.step_count)
        return super().mean_losses(lazy)

    def traced_gradients(self, batch: Batch) -> Arrays | None:
        """Return the gradient that this rank would push next, of its own samples, by canonical
        name; nothing is sent or updated."""
        part, _, factor = self.local_batch(batch)
        with self.model.preserving_statistics():
            _, gradients = self.compute_stale_gradient(part, factor)
        return dict(self.buckets.unflatten(gradients))

    def own_state(self) -> dict[str, Arrays]:
        """Return rank 0's stale parameters (``stale``, empty on the others) and, in ``counts``, for
        each rank its pulled version (``fetched``) and number of batches (``steps``)."""
        held = {f"bucket{i}": self.comm.numpy(p) for i, p in enumerate(self.stale_params)}
        counts = {"fetched": np.array(self.pulled_versions), "steps": np.array(self.steps)}
        return {"stale": held, "counts": counts}

    def restore(self, state: dict[str, Arrays], step: int) -> tuple[dict[str, Arrays], int]:
        """Restore stale parameters and counters after global batch ``step``, taking their entries
        out of ``state``; step 0 also clears the log. Return what is left of ``state`` and the
        updates made, n per global batch. With ``free`` arrival rank 0 first applies all outstanding
        gradients."""
        if self.serves_on_arrival and self.rank == 0:
            self.catch_up(self.step_count)  # no gradient may be pending now
        held, counts, n = state.pop("stale", {}), state.pop("counts", {}), self.size
        self.stale_params = [self.comm.tensor(held[f"bucket{i}"]) for i in range(len(held))]
        self.pulled_versions = [int(v) for v in counts.get("fetched", [0] * n)]
        self.steps = [int(v) for v in counts.get("steps", [0] * n)]
        self.version_offset = step * n - len(self.update_log)
        if step == 0:
            self.comm.generation += 1
            self.update_log, self.version_offset = [], 0
        return state, step * n

    version_offset = 0  # updates applied before the first one in the log

    def steps_to_compare(self, first: int, last: int) -> list[int]:
        """Return the first and the last global batch among ``first`` … ``last`` in which the server
        handles another rank than 0 at the end, to which it has then just sent its parameters; with
        ``free`` arrival, ``first`` and ``last`` themselves."""
        if self.serves_on_arrival:
            return super().steps_to_compare(first, last)
        by_others = (t for t in range(first, last + 1) if self.arrival_order(t)[-1])
        back = (t for t in range(last, first - 1, -1) if self.arrival_order(t)[-1])
        return sorted({t for ends in (by_others, back) for t in [next(ends, 0)] if t})

    def copies(self) -> WeightCopies | None:
        """Return this rank's trainable weights, to be compared between rank 0 and the rank served
        last; None on all ranks if that is rank 0 itself. All ranks call it."""
        weights = self.model.trainable_weights()
        last = self.update_log[-1][1] if self.update_log else 0
        last = int(self.comm.numpy(self.comm.broadcast(self.comm.tensor(np.array([last]))))[0])
        return WeightCopies(weights, (0, last)) if last else None

    def finish_training(self) -> None:
        """Give all ranks, which all call it, rank 0's running statistics, but not its parameters;
        rank 0 also computes the staleness of all gradients in the log."""
        super().finish_training()
        if self.rank == 0:
            self.staleness = {"staleness": staleness_stats(self.update_log, self.size)}

    def summary(self) -> dict[str, Any]:
        """Return under ``how`` how messages are exchanged, and on rank 0, once training is
        finished, under ``staleness`` the staleness of all gradients."""
        how = {"exchange": str(self.comm.implementation_of("exchange"))}
        return {"how": how, **self.staleness}
