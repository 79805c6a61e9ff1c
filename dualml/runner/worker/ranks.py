"""Rank coordination strategies: a single rank, and the base of all groups of several."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dualml.algorithms.communicator import Communicator
from dualml.backend import Arrays, Backend, Training
from dualml.experiment.batches import BatchSampler
from dualml.experiment.sample_digest import SampleDigest, combined_digest, gather_digests
from dualml.experiment.store.agreement import Promise
from dualml.parity.envelope import shuffle_batch
from dualml.runner.worker.evaluate import Score, evaluate

SEGMENT_S = 0.25  # target duration of a window of updates between two reads of the loss
AGREED_WINDOW_UPDATES = 16  # updates of a window where the ranks must agree on its length


class SingleRank:
    """Coordination of a trial with a single rank, which decides by its own clock.

    Attributes:
        rank, size: 0 of 1.
        training: the model that the trial trains.
        nondeterministic: whether the order of updates depends on timing.
        traced_phase: the phase whose gradients `Training.trace` returns.
        sockets: whether messages go through sockets; False where there are none, or where ranks are
            threads that share memory.
    """

    rank, size, nondeterministic, sockets = 0, 1, False, False
    traced_phase = "gradient"

    def __init__(
        self, backend: Backend, training: Training, folder: Path, feed: BatchSampler
    ) -> None:
        self.backend, self.training, self.folder, self.feed = backend, training, folder, feed

    def batch(self, step: int) -> Any:
        """Return the sample indices of update ``step`` in the form that `training` takes."""
        return self.feed.batch(step)

    def trained_samples(self, batch: Any, step: int) -> list[tuple[int, NDArray[np.int64]]]:
        """Return the samples of ``batch`` that this process trained on, each part with the rank to
        which it is assigned."""
        if self.feed.ranks == 1:
            return [(0, batch)]
        ends = np.cumsum([len(part) for part in self.feed.parts(step)])
        return list(enumerate(np.split(batch, ends[:-1])))

    def warm_up(self, chunk: int, updates: int) -> list[tuple[Any, int]]:
        """Return batches, each with the number of the update to make (1), that together compile
        everything a trial of ``updates`` needs; batches are cut to a few times ``chunk``, the
        samples that are processed at a time."""
        batches = []
        for step in self.feed.representative_steps(combined=True, updates=updates):
            batch = self.feed.batch(step)
            # A chunk and the remainder cover every shape that gradient accumulation needs.
            short = len(batch) if len(batch) <= chunk else chunk + (len(batch) % chunk or chunk)
            batches.append((batch[:short], 1))
        return batches

    def describe_samples(
        self, seen: SampleDigest, updates: int
    ) -> tuple[list[dict[str, Any]], str]:
        """Return, for each rank to which samples are assigned, ``n``, the samples it trained on in
        ``updates`` updates, and their ``sha256``; and the combined digest of all."""
        chains = self.gather_rank_digests(seen)
        counts = (
            self.feed.samples_per_rank(updates)
            if len(chains) > 1
            else [self.feed.count_sample_gradients(updates)]
        )
        own = [{"n": n, "sha256": chains[r]} for r, n in enumerate(counts) if r in chains]
        return own, combined_digest(chains)

    def gather_rank_digests(self, seen: SampleDigest) -> dict[int, str]:
        """Return the sample digest of every rank to which samples are assigned, by rank."""
        return dict(seen.rank_digests)

    def max_over_ranks(self, value: float) -> float:
        """Return the maximum of ``value`` over all ranks; with a single one, ``value`` itself."""
        return value

    def replica_divergence(self) -> list[float]:
        """Return the relative distance of each rank's weights from rank 0's, where all replicas
        should be identical; an empty list elsewhere, such as here."""
        return []

    def pop_measurements(self) -> list[tuple[int, str, float]]:
        """Return what was measured beside the losses since the last call, as (update, metric,
        value); values are ratios. A single rank measures nothing: an empty list."""
        return []

    def materialize_losses(self, lazy: Sequence[Any]) -> NDArray[np.float64]:
        """Return the losses of a window of updates as host values."""
        return self.backend.materialize_losses(lazy)

    def local_gradient(self, batch: Any) -> Arrays:
        """Return this rank's gradient before aggregation; empty where there is no aggregation, such
        as here, or it cannot be observed."""
        return {}

    def local_losses(self, lazy: Any) -> Arrays:
        """Return, by name, the losses of the parts of one update's batch that only this rank worked
        on; empty where batches are not divided, such as here."""
        return {}

    def next_window(self, stretch: int, done: int, seconds: float) -> int:
        """Return the number of updates of the next window, after one of ``done`` updates that took
        ``seconds``: twice ``stretch``, its planned number, if it was complete and took less than
        half of `SEGMENT_S`, else ``stretch``."""
        return 2 * stretch if seconds < SEGMENT_S / 2 and done == stretch else stretch

    def checkpoint_due(self, looked: bool, seconds: float, every: float) -> bool:
        """Return whether a checkpoint is due: ``seconds`` of training since the last one exceed
        ``every``. ``looked``, whether an evaluation has just taken place, does not matter here."""
        return seconds > every

    def all_agree(self, step: int) -> bool:
        """Return whether all ranks can resume after the same ``step``: True for a single one."""
        return True

    @contextlib.contextmanager
    def evaluation_mode(self) -> Iterator[None]:
        """Provide the model as it is to be evaluated (for example with averaged parameters) inside
        the block; of a single rank, as it is."""
        yield

    def score(
        self, x: NDArray[np.float32], y: NDArray[np.int64], index: NDArray[np.int64], classes: int
    ) -> Score | None:
        """Evaluate the model on the samples ``index`` of ``x`` and ``y``; ``classes`` is 0 for
        text. Overrides return None on a rank that does not take part; here all do."""
        return evaluate(self.training, x, y, index, classes)

    def finish(self) -> None:
        """Put the model into its final state after the last update; nothing to do for a single
        rank."""

    def shuffle(self, batch: Any, seed: int, draw: int, step: int) -> Any:
        """Return the batch with its samples in another order, for a perturbed run."""
        return shuffle_batch(batch, seed, draw, step)

    def gather_from_ranks(self, numbers: dict[str, int | None]) -> list[dict[str, int | None]]:
        """Return the ``numbers`` of all ranks, one dict per rank; here those of the only one."""
        return [numbers]

    def begin_draws(self) -> None:
        """Prepare the ranks for the perturbed runs of the rounding envelope; nothing to do for a
        single rank."""

    def begin_training(self) -> None:
        """Reset measurements before the first update that counts; nothing to do for a single
        rank."""

    def summary(self) -> dict[str, Any]:
        """Return the fields about the ranks that belong into the trial's summary; none for a single
        rank."""
        return {}


@dataclass(frozen=True)
class WeightCopies:
    """Weights that a rank holds and that must agree with those of other ranks.

    Attributes:
        arrays: key → array; two ranks that share a key must hold equal arrays.
        ranks: ranks whose arrays are compared; None for all.
    """

    arrays: Mapping[str, NDArray[Any]]
    ranks: Sequence[int] | None = None


class MultiRank(SingleRank):
    """Coordination of a trial with several ranks, which all take the same decisions.

    Attributes:
        promise: which of the ranks' weights must be equal at the steps that `steps_to_compare`
            returns.
        counts_all_bytes: whether `sent_bytes` counts every byte that makes up an update.
    """

    promise: Promise = "replicas"
    counts_all_bytes = True

    def __init__(
        self,
        backend: Backend,
        training: Training,
        folder: Path,
        feed: BatchSampler,
        comm: Communicator,
    ) -> None:
        self.comm, self.rank, self.size = comm, comm.rank, comm.size
        self.sockets = comm.sockets
        super().__init__(backend, training, folder, feed)

    def next_window(self, stretch: int, done: int, seconds: float) -> int:
        """Return `AGREED_WINDOW_UPDATES`, so that all ranks agree although their clocks differ."""
        return AGREED_WINDOW_UPDATES

    def max_over_ranks(self, value: float) -> float:
        """Return the maximum of ``value`` over all ranks; all ranks call it."""
        values = self.comm.all_gather(self.comm.tensor(np.array([value])))
        return max(float(self.comm.numpy(each)[0]) for each in values)

    def checkpoint_due(self, looked: bool, seconds: float, every: float) -> bool:
        """Return rank 0's decision by its own clock (``seconds`` exceed ``every``) on all ranks,
        which all call it; False unless an evaluation has just taken place (``looked``)."""
        if not looked:  # evaluations come at the same updates on all ranks
            return False
        # Clocks differ between ranks: rank 0's decides.
        due = self.comm.broadcast(self.comm.tensor(np.array([seconds > every], np.int64)))
        return bool(self.comm.numpy(due)[0])

    def gather_from_ranks(self, numbers: dict[str, int | None]) -> list[dict[str, int | None]]:
        """All-gather the numbers, integers or None, and return one dict per rank in the order of
        ranks; all ranks call it with the same keys."""
        own = np.array([np.nan if x is None else x for x in numbers.values()], np.float64)
        rows = [self.comm.numpy(row) for row in self.comm.all_gather(self.comm.tensor(own))]
        known = [[None if np.isnan(x) else int(x) for x in row] for row in rows]
        return [dict(zip(numbers, row, strict=True)) for row in known]

    def sent_bytes(self) -> int | None:
        """Return the bytes that this rank has sent so far; None where they cannot be counted."""
        return self.comm.count_sent_bytes()

    def steps_to_compare(self, first: int, last: int) -> list[int]:
        """Return the updates after which the `copies` must be compared: ``first`` and ``last``."""
        return sorted({first, last})

    def copies(self) -> WeightCopies | None:
        """Return the weights of this rank, after its last update, to compare with those of the
        others: all trainable ones. Overrides return None where none have to be equal at this
        moment. All ranks call it."""
        return WeightCopies(self.training.trainable_weights())

    def expected_sent_bytes(
        self, shapes: Mapping[str, tuple[int, ...]], first: int, last: int
    ) -> float | None:
        """Return the bytes that all ranks together send per update by the closed form, averaged
        over the updates ``first`` … ``last``; None where no closed form is known, such as here.

        Args:
            shapes: parameter → shape.
            first, last: numbers of the updates.
        """
        return None

    def effective_averagings(self, first: int, last: int) -> float | None:
        """Return the share of averagings in these updates that changed a rank's weights, where
        nothing else proves that averaging took place; None elsewhere, such as here."""
        return None

    def all_agree(self, step: int) -> bool:
        """Return whether all ranks pass the same ``step``; all ranks call it."""
        steps = self.comm.all_gather(self.comm.tensor(np.array([step], np.int64)))
        return len({int(self.comm.numpy(s)[0]) for s in steps}) == 1


class DataParallelRanks(MultiRank):
    """Ranks that share the batch, each with its own part of it."""

    def batch(self, step: int) -> Any:
        """Return the sample indices of update ``step`` as a list of one array per rank."""
        return self.feed.parts(step)

    def trained_samples(self, batch: Any, step: int) -> list[tuple[int, NDArray[np.int64]]]:
        """Return this rank and its part of ``batch``, as the only pair of a list."""
        return [(self.rank, batch[self.rank])]

    def gather_rank_digests(self, seen: SampleDigest) -> dict[int, str]:
        """All-gather the digests that the ranks keep of their own samples; return them by rank."""
        return gather_digests(self.comm, seen)

    def shuffle(self, batch: Any, seed: int, draw: int, step: int) -> Any:
        """Shuffle inside each rank's part only: the assignment of samples to ranks is not a
        rounding effect."""
        return [shuffle_batch(part, seed, draw, step) for part in batch]
