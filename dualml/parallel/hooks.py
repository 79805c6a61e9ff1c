"""The hooks of a trainer: what a strategy for several ranks may add, at fixed points."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal

import numpy as np

from dualml.algorithms.communicator import Communicator
from dualml.backend import Array, Arrays, Backend, Training
from dualml.backend.capability import Tensor
from dualml.parallel.aggregation.straggler import Straggler
from dualml.parallel.aggregation.times import Times
from dualml.parallel.batch import Batch, gather_mean_losses
from dualml.parallel.copies import Promise, WeightCopies
from dualml.parallel.split.timeline import Timeline

#: Which ranks evaluate a sample (`TrainerHooks.scored_by`).
ScoredBy = Literal["all", "divided", "first", "scorer"]


class TrainerHooks:
    """The hooks of `dualml.parallel.trainer.Trainer`, as a single process fills them: its model
    makes whole updates by itself.

    In the methods ``batch`` is the samples of all ranks, a list of one part per rank where
    `takes_parts`. With several ranks, all of them call the same methods in the same order.

    Args:
        backend: of this rank.
        model: this rank's model and optimizer.
        comm: communicator of the ranks; None for a single process.
        slow: description of the straggler, if any.
        seed: seed of the trial, for jitter.

    Attributes:
        step_count: updates so far; in the hooks of an update its number.
        takes_parts: whether the ranks share each batch, each with its own part of it.
        makes_updates: whether an update is made of the hooks here; else `model` makes it whole.
        is_resumable: whether weights and state are all that an update depends on.
        nondeterministic: whether the order of updates depends on timing.
        traced_phase: what the gradients of `trace` are: ``gradient``, or ``aggregation`` where the
            ranks have combined them.
        scored_by: ranks that evaluate a sample: ``all`` alike or together, one of them
            (``divided``), rank 0 alone (``first``), or all with the labels on the rank ``scorer``.
        warm_up_step: number of the update to compile before the trial begins.
        promise: which of the ranks' weights must be equal at the updates of `steps_to_compare`.
        counts_all_bytes: whether the bytes that a rank sends are all that make up an update.
        distributes_samples: whether the model decides itself which samples a rank trains on.
        times, timeline: of the updates, for strategies that record them.
    """

    takes_parts = makes_updates = nondeterministic = distributes_samples = False
    is_resumable = counts_all_bytes = True
    traced_phase = "gradient"
    scored_by: ScoredBy = "all"
    scorer, warm_up_step = 0, 1
    promise: Promise = "replicas"
    times: Times | None = None
    timeline: Timeline | None = None

    def __init__(
        self,
        backend: Backend,
        model: Training,
        comm: Communicator | None = None,
        slow: Straggler | None = None,
        seed: int = 0,
    ) -> None:
        self.backend, self.model, self.comm = backend, model, comm
        self.rank, self.size = (0, 1) if comm is None else (comm.rank, comm.size)
        self.slow, self.seed, self.step_count = slow, seed, 0

    # --- one update -------------------------------------------------------------------------------

    def local_batch(self, batch: Batch) -> tuple[Array, float, float]:
        """Return the indices of this rank's samples, their share of the batch (0 … 1), and the
        factor of its mean gradient in the ranks' sum."""
        return np.asarray(batch), 1.0, 1.0

    def make_whole_updates(
        self, batches: Sequence[Batch], first: int
    ) -> list[tuple[Any, float]] | None:
        """Hook where `model` makes whole updates, one for each of the ``batches``, the first with
        number ``first``: make them in another way than by `model`'s `run_steps`, and return for
        each (lazy loss, share of the batch that it is the mean of); None, without any effect, where
        `run_steps` shall make them."""
        return None

    def begin_update(self, batch: Batch) -> None:
        """Hook: prepare the update with number `step_count` and the samples ``batch``; do nothing
        here."""

    def compute(self, part: Array, factor: float) -> tuple[Any, list[Tensor]]:
        """Hook of forward and backward, where `makes_updates`: return this rank's lazy mean loss of
        the samples ``part`` and their mean gradient times ``factor`` and the loss scale, one tensor
        per bucket. The base class raises `NotImplementedError`."""
        raise NotImplementedError

    def combine(self, gradients: list[Tensor], share: float) -> list[Tensor]:
        """Hook of the reduction: return the ranks' combined gradients; here ``gradients``
        themselves. ``share`` is this rank's share of the batch."""
        return gradients

    def finish(self, gradients: list[Tensor]) -> None:
        """Hook of the update: update this rank's weights with the combined gradients; do nothing
        here."""

    def pop_waiting_seconds(self) -> float:
        """Return the seconds since the last call in which computing or updating, beside `combine`,
        has waited for messages; 0 where all messages are those of `combine`."""
        return 0.0

    @property
    def has_separate_messages(self) -> bool:
        """Whether the messages of an update are sent one by one, so that each of them can be
        delayed."""
        return False

    def mean_losses(self, lazy: Sequence[tuple[Any, float]]) -> Array:
        """Return the mean losses of the global batches, float64 (updates,), from the pairs (lazy
        loss, share of the batch) that `step` returned; on every rank, which all call it."""
        if self.comm is not None and self.takes_parts:
            return gather_mean_losses(self.backend, self.comm, lazy)
        return self.backend.materialize_losses([loss for loss, _ in lazy])

    # --- state ------------------------------------------------------------------------------------

    def own_state(self) -> dict[str, Arrays]:
        """Hook: return what the strategy keeps from update to update beside weights and optimizer
        state, as group → name → array; empty here."""
        return {}

    def restore(self, state: dict[str, Arrays], step: int) -> tuple[dict[str, Arrays], int]:
        """Hook: take the entries of `own_state` out of ``state`` and restore them; return what is
        left of ``state``, and the number of updates that the model has made after update
        ``step``."""
        return state, step

    # --- traces and memory ------------------------------------------------------------------------

    def traced_gradients(self, batch: Batch) -> Arrays | None:
        """Hook: return the combined gradients of ``batch`` by canonical name, without an update;
        None where `model`'s own gradients are traced."""
        return None

    def local_gradient(self, batch: Batch) -> Arrays:
        """Hook: return this rank's gradient as it enters the reduction, by canonical name; empty
        where there is none, or it cannot be observed. Nothing is updated."""
        return {}

    def local_losses(self, lazy: tuple[Any, float]) -> Arrays:
        """Hook: return, by name, the losses of the parts of one update's batch that only this rank
        worked on, from what `step` returned; empty where batches are not divided."""
        return {}

    def buffer_bytes(self) -> int | None:
        """Hook: return the bytes of the buffers of the reduction; None where `model` counts them
        itself."""
        return None

    # --- around the updates -----------------------------------------------------------------------

    def begin_warm_up(self) -> None:
        """Hook: prepare for the warm-up updates, which compile the model and are undone; do nothing
        here."""

    def begin_training(self) -> None:
        """Hook: clear measurements before the first update that counts, and wait for all ranks."""
        if self.times is not None:
            self.times.clear()
        if self.comm is not None:
            self.comm.barrier()

    def begin_draws(self) -> None:
        """Hook: prepare the perturbed runs of the rounding envelope: remove the straggler, which
        changes no number, and wait for all ranks."""
        self.slow = None
        if self.comm is not None:
            self.comm.barrier()

    @contextlib.contextmanager
    def evaluation_mode(self) -> Iterator[None]:
        """Hook: provide the model as it is to be evaluated inside the block, then restore this
        rank's own and wait for all ranks; do nothing here."""
        yield

    def evaluate_by_engine(self, x: Array, y: Array) -> Array | None:
        """Hook: evaluate all samples ``x`` with labels ``y`` by the model's own means on all ranks,
        which all call it; return one row of label, predicted class and mean loss of its evaluation
        batch for each sample that any rank tested, None where dualml evaluates, as here."""
        return None

    def finish_training(self) -> None:
        """Hook: put the model into its final state after the last update; do nothing here."""

    def summary(self) -> dict[str, Any]:
        """Hook: return the strategy's own fields of the trial's summary, as JSON values; empty
        here."""
        return {}

    # --- samples, replicas and bytes --------------------------------------------------------------

    def interchangeable_groups(self, batch: Array) -> list[Array]:
        """Hook: split the samples of a batch, where not `takes_parts`, into groups; changing the
        order within a group changes a result by no more than rounding. Here all are one group."""
        return [batch]

    def trained_part(self, batch: Sequence[Array], step: int) -> Array:
        """Hook: return the samples of ``batch``, one array per rank, that this rank trained on in
        update ``step``, where `takes_parts`."""
        return batch[self.rank]

    def replica_divergence(self) -> list[float]:
        """Return the relative distance of each rank's weights from rank 0's (0.0 for rank 0), where
        ranks hold replicas; else an empty list. All ranks call it."""
        return []

    def pop_measurements(self) -> list[tuple[int, str, float]]:
        """Hook: return what was measured beside the losses since the last call, as (update, metric,
        value); values are ratios."""
        return []

    def steps_to_compare(self, first: int, last: int) -> list[int]:
        """Hook: return, ascending, the updates among ``first`` … ``last`` after which the ranks'
        `copies` must be compared; here ``first`` and ``last`` themselves."""
        return sorted({first, last})

    def copies(self) -> WeightCopies | None:
        """Hook: return the weights of this rank, after its last update, to compare with those of
        the others: all trainable ones; None where none have to be equal at this moment."""
        return WeightCopies(self.model.trainable_weights())

    def expected_sent_bytes(
        self, shapes: Mapping[str, tuple[int, ...]], first: int, last: int, samples: int
    ) -> float | None:
        """Hook: return the bytes that all ranks together send per update by the closed form,
        averaged over the updates ``first`` … ``last``; None where no closed form is known.

        Args:
            shapes: parameter → shape.
            first, last: numbers of the updates.
            samples: number of samples of all these updates.
        """
        return None

    def effective_averagings(self, first: int, last: int) -> float | None:
        """Hook: return the share (0 … 1) of averagings in the updates ``first`` … ``last`` that
        changed this rank's weights, where nothing else proves that averaging took place; else
        None."""
        return None
