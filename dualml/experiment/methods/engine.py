"""Engine-driven training: the interface of a method in one process, and its strategy for several
ranks."""

from __future__ import annotations

import contextlib
import math
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from dualml.algorithms.communicator import Communicator
from dualml.backend import ActivationCapture, Array, Backend, BatchTrace, Training, TrainingSpec
from dualml.backend.capability import Capability, Tensor
from dualml.common.errors import TrialError
from dualml.common.json_types import JsonMapping
from dualml.experiment.methods.registry import MethodInfo
from dualml.experiment.methods.skips import SkippedUpdates
from dualml.parallel.batch import Batch
from dualml.parallel.hooks import ScoredBy
from dualml.parallel.trainer import Trainer


class MethodTraining(Training, ActivationCapture):
    """A training method in one process.

    Attributes:
        sharded: whether weights or state are sharded over the ranks: `gather` collects the weights,
            the state is not visible.
        is_resumable: whether weights and optimizer state are the whole state of an update, so that
            a trial can be resumed.
        processes: number of processes that the engine reports.
        groups: kind of group → ranks of each group, if the engine forms groups.
        full_batch_size: samples of a full global batch, if the engine's own loader distributes them
            in `steps_from_loader`; else 0.
        skips: updates that the engine has skipped; engines that may skip updates report them in
            `state`.
        gathered: number of updates in the weights that `gather` collected last; -1: none.
    """

    sharded: bool = False
    is_resumable: bool = True
    processes: int = 1
    groups: Mapping[str, Sequence[Sequence[int]]] = {}
    full_batch_size: int = 0
    skips: SkippedUpdates
    gathered: int = -1

    def check_processes(self, asked: int) -> None:
        """Check that the engine trains in as many processes as ``asked``, the trial's ranks.

        Raises:
            TrialError: it does not: the engine is in another group than the ranks of the trial.
        """
        if self.processes != asked:
            raise TrialError(
                f"the engine trains in {format_processes(self.processes)}; the trial has "
                f"{format_processes(asked)}: "
                "was it started by a launcher of another job, or with its WORLD_SIZE?"
            )

    def engine_evaluate(self, x: Array, y: Array) -> Array | None:
        """Evaluate the samples ``x`` with labels ``y``, the same on all ranks, by the engine's own
        means, if it has any. All ranks call it.

        Returns:
            One row of label, predicted class and mean loss of its evaluation batch for each sample
                that any rank tested; None: the engine leaves evaluation to dualml.
        """
        return None

    def close(self) -> None:
        """Release what the engine holds outside of the device; do nothing here."""

    @abstractmethod
    def step(self, batch: Array, step: int, weight: float = 1.0) -> Any:
        """Make update ``step`` on this rank's samples at the positions ``batch``, with gradients
        that the engine combines over the ranks, which all call it; return this rank's lazy loss.

        Args:
            weight: weight of this rank's mean loss in the mean over ranks; 1 if all ranks have
                equally many samples.
        """

    def steps_from_loader(
        self, batches: Sequence[Array], first: int
    ) -> Iterator[tuple[Array, Any]]:
        """Make an update for each of these global batches, the first of them number ``first``, on
        this rank's part as the engine's loader gives it. Only methods with a ``full_batch_size``
        have it.

        Returns:
            For each batch, this rank's part as positions (n,), and the lazy loss.
        """
        raise NotImplementedError

    def gather(self) -> None:
        """Gather the weights of the last update, unless that has been done, so that one rank alone
        may ask for them later. All ranks call it: here, or by the first call of `weights` or
        `capture_forward` after an update."""
        if self.gathered != self.step_count:
            self.gather_shards()
            self.gathered = self.step_count

    def gather_shards(self) -> None:
        """Gather the current weights from all ranks, where they are sharded; do nothing here."""

    def trace(self, batch: Array, probe: Array) -> BatchTrace:
        """Return a trace of the forward pass of the samples ``probe`` alone: engines do not expose
        gradients, so these are empty and the loss is 0; real losses and weights are compared at
        every update."""
        return BatchTrace(*self.capture_forward(batch, probe), loss=0.0, gradients={})


def format_processes(processes: int) -> str:
    """Return a number of processes as text, such as ``1 process`` or ``4 processes``."""
    return "1 process" if processes == 1 else f"{processes} processes"


class EngineSupport(Capability):
    """Capability of a backend to train by methods."""

    description = "train by the methods of engines"

    @abstractmethod
    def method(
        self,
        name: str,
        recipe: TrainingSpec,
        comm: Communicator | None,
        config: JsonMapping | None = None,
    ) -> MethodTraining:
        """Return the training by the method of this name, ready to train; ``comm`` None: in one
        process. All ranks call it.

        Args:
            config: the engine's own configuration, for methods that take one.

        Raises:
            Unsupported: there is no such method, it does not run here, or its engine is missing.
        """


class EngineTrainer(Trainer):
    """Trains by a method in a single process.

    Raises:
        TrialError: the engine is in another group than the ranks of the trial.
    """

    model: MethodTraining

    def __init__(
        self, backend: Backend, model: MethodTraining, comm: Communicator | None = None
    ) -> None:
        super().__init__(backend, model, comm)
        model.check_processes(self.size)
        self.is_resumable = model.is_resumable


class EngineDataParallel(EngineTrainer):
    """Trains by a method on several ranks, each with its part of the batch; the engine reduces.

    Args:
        info: facts about the method; None where they are unknown.
    """

    comm: Communicator
    takes_parts = makes_updates = True
    scored_by: ScoredBy = "divided"

    def __init__(
        self,
        backend: Backend,
        model: MethodTraining,
        comm: Communicator,
        info: MethodInfo | None = None,
    ) -> None:
        super().__init__(backend, model, comm)
        self.info = info
        if info is not None:
            self.promise = "shards" if "weights" in info.shards else "replicas"
            self.counts_all_bytes = info.counted

    def check_parts(self, sizes: Sequence[int], step: int) -> None:
        """Check that every rank has samples in update ``step``; ``sizes`` are the numbers of
        samples by rank.

        Raises:
            TrialError: a rank has no samples.
        """
        if not min(sizes):
            raise TrialError(
                f"update {step} has {sum(sizes)} samples for {self.size} ranks: one "
                "has none, and an engine needs some of every rank; use another batch_size"
            )

    def begin_update(self, batch: Batch) -> None:
        """Raise `TrialError` unless every rank has samples in ``batch``, which has one array per
        rank."""
        self.check_parts([len(part) for part in batch], self.step_count)

    def local_batch(self, batch: Batch) -> tuple[Array, float, float]:
        """Return this rank's part of ``batch``, which has one array per rank, its share of the
        batch (0 … 1), and the weight of its mean loss in the mean over the ranks, which is 1 for
        equal parts."""
        part: Array = batch[self.rank]
        share = len(part) / sum(map(len, batch))
        return part, share, share * self.comm.size

    def compute(self, part: Array, factor: float) -> tuple[Any, list[Tensor]]:
        """Make a whole update by the engine, in which this rank's mean loss of the samples ``part``
        has the weight ``factor``; return its lazy loss and an empty list, because the engine keeps
        the gradients."""
        return self.model.step(part, self.step_count, factor), []

    @contextlib.contextmanager
    def evaluation_mode(self) -> Iterator[None]:
        """Gather sharded weights before the block, and wait for all ranks after it; all ranks enter
        it."""
        self.model.gather()
        yield
        self.comm.barrier()

    def evaluate_by_engine(self, x: Array, y: Array) -> Array | None:
        """Evaluate by the engine's own means, see `MethodTraining.engine_evaluate`; None if it has
        none."""
        return self.model.engine_evaluate(x, y)

    def expected_sent_bytes(
        self, shapes: Mapping[str, tuple[int, ...]], first: int, last: int, samples: int
    ) -> float | None:
        """Return the bytes per update that the method's facts predict (`MethodInfo.moved`), for all
        ranks together; None if they predict nothing."""
        if self.info is None or not self.info.moved:
            return None
        width = np.dtype(self.backend.dtype).itemsize
        return self.info.moved * (self.size - 1) * width * sum(map(math.prod, shapes.values()))

    def summary(self) -> dict[str, Any]:
        """Return under ``how`` the groups of ranks that the engine reports, ``KIND groups`` → text;
        an empty dict if it forms none."""
        groups = {
            f"{kind} groups": "; ".join(" ".join(map(str, ranks)) for ranks in every)
            for kind, every in self.model.groups.items()
        }
        return {"how": groups} if groups else {}
