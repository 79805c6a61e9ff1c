"""Coordination of the ranks of a trial: their samples, their clocks, and what they gather."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dualml.algorithms.communicator import Communicator
from dualml.experiment.batches import BatchSampler
from dualml.experiment.sample_digest import SampleDigest, combined_digest, gather_digests
from dualml.experiment.store.times import TIMELINE, TIMES
from dualml.parallel.trainer import Trainer
from dualml.parity.envelope import shuffle_batch
from dualml.runner.worker.evaluate import Score, evaluate, score_from_rows

SEGMENT_S = 0.25  # target duration of a window of updates between two reads of the loss
AGREED_WINDOW_UPDATES = 16  # updates of a window where the ranks must agree on its length


class SingleRank:
    """Coordination of a trial with a single rank, which decides by its own clock.

    Args:
        trainer: makes the updates, and decides what depends on the strategy.
        folder: of the trial.
        feed: samples of each update.

    Attributes:
        rank, size: 0 of 1.
        sockets: whether messages go through sockets; False where there are none, or where ranks are
            threads that share memory.
    """

    sockets = False

    def __init__(self, trainer: Trainer, folder: Path, feed: BatchSampler) -> None:
        self.trainer, self.folder, self.feed = trainer, folder, feed
        self.rank, self.size = trainer.rank, trainer.size

    def batch(self, step: int) -> Any:
        """Return the sample indices of update ``step``: where the ranks share a batch, a list of
        one array per rank."""
        return self.feed.parts(step) if self.trainer.takes_parts else self.feed.batch(step)

    def trained_samples(self, batch: Any, step: int) -> list[tuple[int, NDArray[np.int64]]]:
        """Return the samples of ``batch`` that this process trained on, each part with the rank to
        which it is assigned."""
        if self.trainer.takes_parts:
            return [(self.rank, self.trainer.trained_part(batch, step))]
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
        """Return the samples trained on in the first ``updates`` updates: for each rank to which
        samples are assigned their number ``n`` and digest ``sha256``, in the order of ranks; and
        the combined digest of all."""
        chains = self.gather_rank_digests(seen)
        counts = [self.feed.count_sample_gradients(updates)]
        if len(chains) > 1:
            counts = self.feed.samples_per_rank(updates)
        own = [{"n": n, "sha256": chains[r]} for r, n in enumerate(counts) if r in chains]
        return own, combined_digest(chains)

    def gather_rank_digests(self, seen: SampleDigest) -> dict[int, str]:
        """Return rank → sample digest, for every rank to which samples are assigned."""
        return dict(seen.rank_digests)

    def shuffle(self, batch: Any, seed: int, draw: int, step: int) -> Any:
        """Return the batch of update ``step`` with its samples in another order, for perturbed run
        number ``draw``: inside of each rank's part only, because the assignment of samples to ranks
        is not a rounding effect."""
        if self.trainer.takes_parts:
            return [shuffle_batch(part, seed, draw, step) for part in batch]
        groups = self.trainer.interchangeable_groups(batch)
        return np.concatenate([shuffle_batch(group, seed, draw, step) for group in groups])

    def max_over_ranks(self, value: float) -> float:
        """Return the maximum of ``value`` over all ranks; with a single one, ``value`` itself."""
        return value

    def next_window(self, planned: int, done: int, seconds: float) -> int:
        """Return the number of updates of the next window, after one of ``done`` updates that took
        ``seconds``: twice ``planned``, the number that it had to make, if it was complete and took
        less than half of `SEGMENT_S`, else ``planned``."""
        return 2 * planned if seconds < SEGMENT_S / 2 and done == planned else planned

    def checkpoint_due(self, has_evaluated: bool, seconds: float, every: float) -> bool:
        """Return whether a checkpoint is due: ``seconds`` of training since the last one exceed
        ``every``, and the trial can be resumed. ``has_evaluated``, whether an evaluation has just
        taken place, does not matter here."""
        return self.trainer.is_resumable and seconds > every

    def share_decision(self, decision: bool) -> bool:
        """Return ``decision`` of rank 0; with a single rank its own."""
        return decision

    def all_agree(self, step: int) -> bool:
        """Return whether all ranks can resume after the same ``step``: True for a single one."""
        return True

    def gather_from_ranks(self, numbers: dict[str, int | None]) -> list[dict[str, int | None]]:
        """Return the ``numbers`` of all ranks, one dict per rank in the order of ranks; here a list
        with the given dict alone."""
        return [numbers]

    def sent_bytes(self) -> int | None:
        """Return the bytes that this process has sent so far, once all ranks have come here, which
        all call it; None if unknown, and for a single rank, which sends nothing."""
        return None

    def score(
        self, x: NDArray[np.float32], y: NDArray[np.int64], index: NDArray[np.int64], classes: int
    ) -> Score | None:
        """Evaluate the model on the samples ``index`` of ``x`` and ``y``; ``classes`` is 0 for
        text. Return None on a rank that does not take part."""
        return evaluate(self.trainer.model, x, y, index, classes)

    def finish(self) -> None:
        """Put the model into its final state after the last update, and write this rank's times
        into the trial's folder; all ranks call it."""
        trainer = self.trainer
        trainer.finish_training()
        if trainer.timeline is not None:
            TIMELINE.write(self.folder, self.rank, trainer.timeline.columns())
        if trainer.times is not None:
            TIMES.write(self.folder, self.rank, trainer.times.columns())

    def summary(self) -> dict[str, Any]:
        """Return the fields about the ranks that belong into the trial's summary; none for a single
        rank."""
        return {}


class MultiRank(SingleRank):
    """Coordination of a trial with several ranks, which all take the same decisions."""

    def __init__(
        self, trainer: Trainer, folder: Path, feed: BatchSampler, comm: Communicator
    ) -> None:
        super().__init__(trainer, folder, feed)
        self.comm, self.sockets = comm, comm.sockets

    def warm_up(self, chunk: int, updates: int) -> list[tuple[Any, int]]:
        """Return a batch of every size that occurs in ``updates`` updates, each with the number of
        an update in which the ranks communicate; ``chunk`` is ignored. The trainer is told that a
        warm-up begins."""
        self.trainer.begin_warm_up()
        whole = not self.trainer.takes_parts
        typical = self.feed.representative_steps(combined=whole, updates=updates)
        return [(self.batch(step), self.trainer.warm_up_step) for step in typical]

    def describe_samples(
        self, seen: SampleDigest, updates: int
    ) -> tuple[list[dict[str, Any]], str]:
        """Return number and digest of each rank's samples, and the combined digest; where an
        engine's loader distributes samples, the numbers are those that the ranks counted. All ranks
        call it."""
        samples, sha256 = super().describe_samples(seen, updates)
        if not self.trainer.distributes_samples:
            return samples, sha256
        own = self.comm.tensor(np.array([seen.counts[self.rank]], np.int64))
        counts = [int(self.comm.numpy(n)[0]) for n in self.comm.all_gather(own)]
        return [{**each, "n": n} for each, n in zip(samples, counts, strict=True)], sha256

    def gather_rank_digests(self, seen: SampleDigest) -> dict[int, str]:
        """Return the sample digests of all ranks, gathered from ranks that keep only their own; all
        ranks call it."""
        if self.trainer.takes_parts:
            return gather_digests(self.comm, seen)
        return super().gather_rank_digests(seen)

    def max_over_ranks(self, value: float) -> float:
        """Return the maximum of ``value`` over all ranks; all ranks call it."""
        values = self.comm.all_gather(self.comm.tensor(np.array([value])))
        return max(float(self.comm.numpy(each)[0]) for each in values)

    def next_window(self, planned: int, done: int, seconds: float) -> int:
        """Return `AGREED_WINDOW_UPDATES`, so that all ranks agree although their clocks differ."""
        return AGREED_WINDOW_UPDATES

    def checkpoint_due(self, has_evaluated: bool, seconds: float, every: float) -> bool:
        """Return rank 0's decision by its own clock (``seconds`` exceed ``every``) on all ranks,
        which all call it; False unless an evaluation has just taken place (``has_evaluated``), and
        where the trial cannot be resumed."""
        if not has_evaluated or not self.trainer.is_resumable:
            return False  # evaluations come at the same updates on all ranks
        return self.share_decision(seconds > every)  # clocks differ between ranks

    def share_decision(self, decision: bool) -> bool:
        """Return rank 0's decision on all ranks, which all call it."""
        shared = self.comm.broadcast(self.comm.tensor(np.array([decision], np.int64)))
        return bool(self.comm.numpy(shared)[0])

    def all_agree(self, step: int) -> bool:
        """Return whether all ranks pass the same ``step``; all ranks call it."""
        steps = self.comm.all_gather(self.comm.tensor(np.array([step], np.int64)))
        return len({int(self.comm.numpy(s)[0]) for s in steps}) == 1

    def gather_from_ranks(self, numbers: dict[str, int | None]) -> list[dict[str, int | None]]:
        """All-gather the numbers, integers or None, and return one dict per rank in the order of
        ranks; all ranks call it with the same keys."""
        own = np.array([np.nan if x is None else x for x in numbers.values()], np.float64)
        rows = [self.comm.numpy(row) for row in self.comm.all_gather(self.comm.tensor(own))]
        known = [[None if np.isnan(x) else int(x) for x in row] for row in rows]
        return [dict(zip(numbers, row, strict=True)) for row in known]

    def sent_bytes(self) -> int | None:
        """Return the bytes that this rank has sent so far, once all ranks have come here, which all
        call it; None where they cannot be counted."""
        self.max_over_ranks(0.0)
        return self.comm.count_sent_bytes()

    def score(
        self, x: NDArray[np.float32], y: NDArray[np.int64], index: NDArray[np.int64], classes: int
    ) -> Score | None:
        """Evaluate by the model's own means if it has any, else on the ranks that
        `Trainer.scored_by` names; text is always evaluated by dualml. All ranks call it; None on a
        rank that does not take part."""
        trainer = self.trainer
        rows = trainer.evaluate_by_engine(x[index], y[index]) if classes else None
        if rows is not None:
            return score_from_rows(rows, classes)
        if trainer.scored_by == "all" or (trainer.scored_by == "first" and not self.rank):
            return super().score(x, y, index, classes)
        if trainer.scored_by == "first":
            return None
        root = trainer.scorer if trainer.scored_by == "scorer" else None
        return evaluate(trainer.model, x, y, index, classes, self.comm, root)

    def summary(self) -> dict[str, Any]:
        """Return the number of ranks as ``world_size``, and further fields about the ranks that
        their trainer adds."""
        return {"world_size": self.size, **self.trainer.summary()}
