"""Rank coordination where an engine's own loop makes the updates."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dualml.algorithms.communicator import Communicator
from dualml.backend import Backend
from dualml.experiment.batches import BatchSampler
from dualml.experiment.methods import MethodInfo
from dualml.experiment.methods.engine import MethodTraining
from dualml.experiment.methods.engine_loader import EngineLoaderParallel, make_data_parallel
from dualml.experiment.sample_digest import SampleDigest
from dualml.runner.worker.evaluate import Score, evaluate, score_from_rows
from dualml.runner.worker.ranks import DataParallelRanks, SingleRank


class MethodSingleRank(SingleRank):
    """A training method in a single process."""

    training: MethodTraining

    def __init__(
        self, backend: Backend, training: MethodTraining, folder: Path, feed: BatchSampler
    ) -> None:
        training.check_processes(1)
        super().__init__(backend, training, folder, feed)

    def checkpoint_due(self, looked: bool, seconds: float, every: float) -> bool:
        """Return whether more than ``every`` seconds of training passed since the last checkpoint;
        False for an engine that cannot be resumed. ``looked`` is ignored."""
        return self.training.is_resumable and super().checkpoint_due(looked, seconds, every)


class MethodRanks(DataParallelRanks):
    """A training method on several ranks, each with its part of the batch."""

    def __init__(
        self,
        backend: Backend,
        training: MethodTraining,
        folder: Path,
        feed: BatchSampler,
        comm: Communicator,
        info: MethodInfo | None = None,
    ) -> None:
        self.engine_training = make_data_parallel(backend, training, comm)
        super().__init__(backend, self.engine_training, folder, feed, comm)
        self.method, self.info = training, info
        if info is not None:
            self.promise = "shards" if "weights" in info.shards else "replicas"
            self.counts_all_bytes = info.counted

    def expected_sent_bytes(
        self, shapes: Mapping[str, tuple[int, ...]], first: int, last: int
    ) -> float | None:
        """Return the bytes per update that the method's facts predict (`MethodInfo.moved`), for all
        ranks together; None if they predict nothing. ``first`` and ``last`` are ignored."""
        if self.info is None or not self.info.moved:
            return None
        width = np.dtype(self.backend.dtype).itemsize
        return self.info.moved * (self.size - 1) * width * sum(map(math.prod, shapes.values()))

    def warm_up(self, chunk: int, updates: int) -> list[tuple[Any, int]]:
        """Return a batch, as a list of one part per rank, for every size of the parts that occurs,
        each with update number 1; ``chunk`` is ignored."""
        typical = self.feed.representative_steps(combined=False, updates=updates)
        return [(self.feed.parts(step), 1) for step in typical]

    def materialize_losses(self, lazy: Sequence[Any]) -> NDArray[np.float64]:
        """Return the mean losses of the global batches, one per update, gathered from all ranks,
        which all call it."""
        return self.engine_training.materialize_losses(lazy)

    def trained_samples(self, batch: Any, step: int) -> list[tuple[int, NDArray[np.int64]]]:
        """Return this rank and its samples as the only pair of a list; where the engine's loader
        distributes them, those that it delivered in update ``step``."""
        if isinstance(self.engine_training, EngineLoaderParallel):
            return [(self.rank, self.engine_training.loaded_samples[step])]
        return super().trained_samples(batch, step)

    def describe_samples(
        self, seen: SampleDigest, updates: int
    ) -> tuple[list[dict[str, Any]], str]:
        """Return number and digest of each rank's samples, and the combined digest; where the
        engine's loader distributes samples, the numbers are those that the ranks counted."""
        samples, sha256 = super().describe_samples(seen, updates)
        if not isinstance(self.engine_training, EngineLoaderParallel):
            return samples, sha256
        own = self.comm.tensor(np.array([seen.counts[self.rank]], np.int64))
        counts = [int(self.comm.numpy(n)[0]) for n in self.comm.all_gather(own)]
        return [{**each, "n": n} for each, n in zip(samples, counts, strict=True)], sha256

    def checkpoint_due(self, looked: bool, seconds: float, every: float) -> bool:
        """Return, on all ranks, rank 0's decision whether to save a checkpoint; False unless an
        evaluation has just taken place (``looked``), and for an engine that cannot be resumed."""
        return self.method.is_resumable and super().checkpoint_due(looked, seconds, every)

    @contextlib.contextmanager
    def evaluation_mode(self) -> Iterator[None]:
        """Gather sharded weights before the block, and wait for all ranks after it."""
        self.engine_training.gather()
        yield
        self.comm.barrier()

    def score(
        self, x: NDArray[np.float32], y: NDArray[np.int64], index: NDArray[np.int64], classes: int
    ) -> Score | None:
        """Evaluate by the engine's own means if it has any, else divide the samples over the ranks;
        text is always evaluated by dualml. All ranks call it and get the score."""
        rows = self.method.engine_evaluate(x[index], y[index]) if classes else None
        if rows is not None:
            return score_from_rows(rows, classes)
        return evaluate(self.training, x, y, index, classes, self.comm)

    def begin_training(self) -> None:
        """Wait for all ranks before the first update."""
        self.comm.barrier()

    def summary(self) -> dict[str, Any]:
        """Return the number of ranks, and the groups of ranks that the engine reports."""
        groups = {
            f"{kind} groups": "; ".join(" ".join(map(str, ranks)) for ranks in every)
            for kind, every in self.method.groups.items()
        }
        return {"world_size": self.size, **({"how": groups} if groups else {})}
