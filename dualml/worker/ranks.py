"""How the ranks of a trial work together: one alone, and what all groups of several have."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dualml.backend import Arrays, Backend, Training
from dualml.communicator import Communicator
from dualml.experiment.deals import Feed
from dualml.experiment.seen import Seen, all_chains, combined
from dualml.parity.envelope import shuffled
from dualml.store.agreement import Promise
from dualml.worker.evaluate import Score, evaluate

SEGMENT_S = 0.25  # aim of one stretch of updates between two readings of the loss
TOGETHER = 16  # updates of a stretch where the ranks must agree on it


class Alone:
    """A trial with one rank: it decides by its own clock.

    Attributes:
        rank, size: 0 of 1.
        training: what the trial trains.
        free: whether the order of updates is left to chance.
        traced: the phase whose gradients `Training.trace` shows.
        sockets: whether messages leave by sockets: else there are none, or threads share memory.
    """

    rank, size, free, sockets = 0, 1, False, False
    traced = "gradient"

    def __init__(self, backend: Backend, training: Training, folder: Path, feed: Feed) -> None:
        self.backend, self.training, self.folder, self.feed = backend, training, folder, feed

    def batch(self, step: int) -> Any:
        """What `training` gets as the batch of an update."""
        return self.feed.batch(step)

    def trained_on(self, batch: Any, step: int) -> list[tuple[int, NDArray[np.int64]]]:
        """Samples of ``batch`` that this process worked on, and the rank they were dealt to."""
        if self.feed.ranks == 1:
            return [(0, batch)]
        ends = np.cumsum([len(part) for part in self.feed.parts(step)])
        return list(enumerate(np.split(batch, ends[:-1])))

    def warm_up(self, chunk: int, updates: int) -> list[tuple[Any, int]]:
        """Batches, and the numbers of updates, that compile what a trial of ``updates`` needs."""
        batches = []
        for step in self.feed.typical(together=True, updates=updates):
            batch = self.feed.batch(step)
            # A chunk and the remainder have every shape that the accumulation of all has.
            short = len(batch) if len(batch) <= chunk else chunk + (len(batch) % chunk or chunk)
            batches.append((batch[:short], 1))
        return batches

    def samples_seen(self, seen: Seen, updates: int) -> tuple[list[dict[str, Any]], str]:
        """How many samples each rank trained on, with their fingerprint; that of all."""
        chains = self.all_chains(seen)
        counts = self.feed.of_ranks(updates) if len(chains) > 1 else [self.feed.samples(updates)]
        own = [{"n": n, "sha256": chains[r]} for r, n in enumerate(counts) if r in chains]
        return own, combined(chains)

    def all_chains(self, seen: Seen) -> dict[int, str]:
        """Every rank's chain of samples."""
        return dict(seen.chains)

    def most(self, value: float) -> float:
        """The largest of the ranks' values."""
        return value

    def apart(self) -> list[float]:
        """How far each rank's weights are from rank 0's, as a share of their size, where all should
        hold the same; empty elsewhere."""
        return []

    def measured(self) -> list[tuple[int, str, float]]:
        """Update, metric and value (a ratio) of what was measured beside the losses since the last
        time."""
        return []

    def read(self, lazy: Sequence[Any]) -> NDArray[np.float64]:
        """Losses of a stretch of updates."""
        return self.backend.read(lazy)

    def own_gradient(self, batch: Any) -> Arrays:
        """This rank's gradient as it enters the aggregation; empty where it is not seen alone."""
        return {}

    def own_loss(self, lazy: Any) -> Arrays:
        """Losses of the parts of one update's batch that this rank alone worked on, by name."""
        return {}

    def next_stretch(self, stretch: int, done: int, seconds: float) -> int:
        """Updates of the next stretch, after one of ``done`` updates in ``seconds``."""
        return 2 * stretch if seconds < SEGMENT_S / 2 and done == stretch else stretch

    def checkpoint_due(self, looked: bool, seconds: float, every: float) -> bool:
        """Whether to save, ``seconds`` of training after the last time."""
        return seconds > every

    def agree(self, step: int) -> bool:
        """Whether all ranks can go on after ``step``."""
        return True

    @contextlib.contextmanager
    def evaluating(self) -> Iterator[None]:
        """The model as it is evaluated."""
        yield

    def score(
        self, x: NDArray[np.float32], y: NDArray[np.int64], index: NDArray[np.int64], classes: int
    ) -> Score | None:
        """The score on some samples; None on a rank that only stands by."""
        return evaluate(self.training, x, y, index, classes)

    def finish(self) -> None:
        """After the last update: the model as it is kept."""

    def shuffle(self, batch: Any, seed: int, draw: int, step: int) -> Any:
        """The same samples in another order."""
        return shuffled(batch, seed, draw, step)

    def of_each(self, numbers: dict[str, int | None]) -> list[dict[str, int | None]]:
        """Rank → its numbers."""
        return [numbers]

    def begin_draws(self) -> None:
        """Before the rounding envelope is drawn."""

    def begin_training(self) -> None:
        """Before the first update that counts."""

    def summary(self) -> dict[str, Any]:
        """What the trial tells of its ranks."""
        return {}


@dataclass(frozen=True)
class Copies:
    """Weights that a rank holds.

    Attributes:
        arrays: key → array; where two ranks have a key in common their arrays must be equal.
        ranks: those whose arrays are compared; None: all.
    """

    arrays: Mapping[str, NDArray[Any]]
    ranks: Sequence[int] | None = None


class Several(Alone):
    """A trial with several ranks: all decide alike.

    Attributes:
        promise: which of their weights must be equal, where `agreeing` says.
        counted: whether what `sent` counts are all bytes that make an update.
    """

    promise: Promise = "replicas"
    counted = True

    def __init__(
        self, backend: Backend, training: Training, folder: Path, feed: Feed, comm: Communicator
    ) -> None:
        self.comm, self.rank, self.size = comm, comm.rank, comm.size
        self.sockets = comm.sockets
        super().__init__(backend, training, folder, feed)

    def next_stretch(self, stretch: int, done: int, seconds: float) -> int:
        return TOGETHER

    def most(self, value: float) -> float:
        values = self.comm.all_gather(self.comm.tensor(np.array([value])))
        return max(float(self.comm.numpy(each)[0]) for each in values)

    def checkpoint_due(self, looked: bool, seconds: float, every: float) -> bool:
        if not looked:  # evaluations come at the same updates on all ranks
            return False
        # Clocks differ between ranks: the first one's counts.
        due = self.comm.broadcast(self.comm.tensor(np.array([seconds > every], np.int64)))
        return bool(self.comm.numpy(due)[0])

    def of_each(self, numbers: dict[str, int | None]) -> list[dict[str, int | None]]:
        own = np.array([np.nan if x is None else x for x in numbers.values()], np.float64)
        rows = [self.comm.numpy(row) for row in self.comm.all_gather(self.comm.tensor(own))]
        known = [[None if np.isnan(x) else int(x) for x in row] for row in rows]
        return [dict(zip(numbers, row, strict=True)) for row in known]

    def sent(self) -> int | None:
        """Count the bytes that this rank has sent so far; None where they are not seen."""
        return self.comm.sent()

    def agreeing(self, first: int, last: int) -> list[int]:
        """List the updates among ``first`` … ``last`` after which `copies` are to be compared."""
        return sorted({first, last})

    def copies(self) -> Copies | None:
        """Copy the weights that this rank holds after the last update; None where, just now, none
        must be equal. All ranks call it."""
        return Copies(self.training.learned())

    def closed_sent(
        self, shapes: Mapping[str, tuple[int, ...]], first: int, last: int
    ) -> float | None:
        """Compute the bytes that all ranks together send in an update, a mean over the updates
        ``first`` … ``last``; None where no closed form is known.

        Args:
            shapes: parameter → shape.
        """
        return None

    def averagings(self, first: int, last: int) -> float | None:
        """Tell the share of the averagings in these updates that changed a rank's weights, where
        nothing else shows that there were any; None elsewhere."""
        return None

    def agree(self, step: int) -> bool:
        steps = self.comm.all_gather(self.comm.tensor(np.array([step], np.int64)))
        return len({int(self.comm.numpy(s)[0]) for s in steps}) == 1


class Sharing(Several):
    """Ranks that share the batch, each with its part of it."""

    def batch(self, step: int) -> Any:
        return self.feed.parts(step)

    def trained_on(self, batch: Any, step: int) -> list[tuple[int, NDArray[np.int64]]]:
        return [(self.rank, batch[self.rank])]

    def all_chains(self, seen: Seen) -> dict[int, str]:
        return all_chains(self.comm, seen)

    def shuffle(self, batch: Any, seed: int, draw: int, step: int) -> Any:
        """Inside each rank's part: which rank has which samples is not a matter of rounding."""
        return [shuffled(part, seed, draw, step) for part in batch]
