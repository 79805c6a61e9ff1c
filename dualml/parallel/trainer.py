"""The trainer of one rank: forward, backward, reduce, update, with hooks for each strategy.

`Trainer.step` is the only loop of an update. How ranks train together (data parallel, local SGD, a
parameter server, sharding, a split model, an engine) is a strategy: a subclass that fills the hooks
it needs. What no strategy changes (weights, running statistics, evaluation of samples) is asked of
`Trainer.model` itself.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from dualml.backend import ActivationCapture, Array, Arrays, BatchTrace, MemoryReport, MemoryUsage
from dualml.parallel.aggregation.straggler import pause
from dualml.parallel.batch import Batch, join_parts
from dualml.parallel.hooks import TrainerHooks


class Trainer(TrainerHooks):
    """Trains a model on one rank; a subclass fills hooks and overrides nothing of what is here. All
    ranks call the same methods in the same order."""

    def step(self, batch: Batch, step: int) -> tuple[Any, float]:
        """Make update ``step``; return this rank's lazy loss, None without samples, and the share
        of the batch that it is the mean of; for a split model what the model's own `step` returns,
        and 1."""
        return self.run_steps([batch], step)[0]

    def run_steps(self, batches: Sequence[Batch], first: int) -> list[tuple[Any, float]]:
        """Make one update for each of the ``batches``, numbered from ``first``; return for each
        (this rank's lazy loss, share of the batch that it is the mean of), as `step` does."""
        if self.makes_updates:
            return [
                self.make_update(batch, step) for step, batch in enumerate(batches, start=first)
            ]
        self.step_count = first + len(batches) - 1
        made = self.make_whole_updates(batches, first)
        return (
            [(loss, 1.0) for loss in self.model.run_steps(batches, first)] if made is None else made
        )

    def make_update(self, batch: Batch, step: int) -> tuple[Any, float]:
        """Make update ``step`` from the hooks, where `makes_updates`, and record its times; return
        (this rank's lazy loss, its share of the batch)."""
        self.step_count, self.model.step_count = step, step - 1  # masks of Dropout depend on it
        self.begin_update(batch)
        part, share, factor = self.local_batch(batch)
        self.pop_waiting_seconds()
        begin = time.perf_counter()
        with self.delay_messages():
            loss, gradients = self.compute(part, factor)
            waited = self.pop_waiting_seconds()
            if self.slow is not None:
                spent = time.perf_counter() - begin - waited
                pause(self.slow.compute_delay(self.rank, spent, step, self.seed))
            arrive = time.perf_counter() - waited
            gradients = self.combine(gradients, share)
            end = time.perf_counter()
            self.pop_waiting_seconds()  # a wait of the reduction is no part of the update
            self.finish(gradients)
        if self.times is not None:
            end += self.pop_waiting_seconds()
            self.times.add(begin, arrive, end, time.perf_counter())
        self.model.step_count = step
        return loss, share

    @contextlib.contextmanager
    def delay_messages(self) -> Iterator[None]:
        """Delay the straggler's messages inside this context if they are sent one by one, and none
        afterwards."""
        comm, slow = self.comm, self.slow
        if comm is None or slow is None:
            yield
            return
        if self.has_separate_messages:
            comm.delay = lambda sent, received: slow.transfer_delay(
                self.rank, sent, received, self.step_count
            )
        try:
            yield
        finally:
            comm.delay = None

    def state(self) -> dict[str, Arrays]:
        """Return everything but the weights that an update depends on: the optimizer state, and
        what the strategy keeps itself. Ranks that share a model call it together."""
        return {**self.model.state(), **self.own_state()}

    def load(self, weights: Mapping[str, Array], state: Mapping[str, Arrays], step: int) -> None:
        """Restore ``weights`` and ``state``, as `state` returned it, as they were after update
        ``step``; step 0 also clears the recorded times."""
        state, updates = self.restore(dict(state), step)
        self.model.load(weights, state, updates)
        self.step_count = step
        if step == 0 and self.times is not None:
            self.times.clear()

    def trace(self, batch: Batch, probe: Array) -> BatchTrace:
        """Return the gradients of ``batch`` as the ranks combine them, and activations of the
        samples ``probe``; no state changes. The loss is 0 where a strategy combines the gradients
        itself (`traced_gradients`). All ranks call it."""
        gradients = self.traced_gradients(batch)
        if gradients is None:
            return self.model.trace(join_parts(batch), probe)
        return BatchTrace(*self.capture_forward(batch, probe), 0.0, gradients)

    def capture_forward(self, batch: Batch, probe: Array) -> tuple[str, Arrays]:
        """Run the model on the samples ``probe`` without an update, together with the ranks that
        share it; return the SHA-256 of the whole batch and the whole activations by layer. Raise
        `Unsupported` if the model cannot."""
        model = self.model.require_capability(ActivationCapture)
        return model.capture_forward(join_parts(batch), probe)

    def fetch_batch(self, batch: Batch) -> tuple[Array, Array]:
        """Return the samples and labels of this rank's part of ``batch`` as the model receives
        them; for a split model those of the whole batch, on every rank, which all call it. Raise
        `Unsupported` if the model cannot."""
        model = self.model.require_capability(ActivationCapture)
        return model.fetch_batch(self.local_batch(batch)[0])

    def measure_memory(self, batch: Batch | None = None) -> MemoryUsage:
        """Return the bytes that this rank holds after an update, with the activations of its part
        of ``batch``: 0 if that part is empty, None without a batch or where they are not seen.

        A split model ignores ``batch`` and reports its last count. An engine's method may make
        an update with ``batch``: all ranks call it, and load the weights anew after it.

        Raises:
            Unsupported: the model cannot count its bytes.
        """
        part = None if batch is None else self.local_batch(batch)[0]
        nothing = part is not None and not len(part)
        model = self.model.require_capability(MemoryReport)
        own = model.measure_memory(None if nothing else part)
        if nothing:
            own = replace(own, activations=0)
        buffers = self.buffer_bytes()
        return own if buffers is None else replace(own, buckets=buffers)
