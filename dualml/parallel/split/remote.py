"""The interface of a split model for a trial."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, Protocol

from dualml.backend import ActivationCapture, Array, Training
from dualml.parallel.aggregation.straggler import Straggler
from dualml.parallel.split.plan import SplitPlan
from dualml.parallel.split.timeline import Timeline


class Execution(Protocol):
    """The attributes that a trial sets and reads on the object that executes a split.

    Attributes:
        plan: how the model is split.
        timeline: recorded events of this rank.
        seed: seed of the trial, from which dropout masks and orders are drawn.
        slow: simulated straggler; None without one.
        max_in_flight: largest number of micro-batches so far that were between their forward and
            backward pass at the same time.
        max_saved_bytes: largest number of bytes saved for backward passes while they were counted.
    """

    plan: SplitPlan
    timeline: Timeline
    seed: int
    slow: Straggler | None
    max_in_flight: int
    max_saved_bytes: int


class SplitModel(Training, ActivationCapture):
    """A model that several ranks share, as one of them sees it.

    Attributes:
        executor: executes the plan on this rank.
        calls: how the stages are called, for the records; empty if they exchange messages.
    """

    executor: Execution
    calls: str = ""

    @abstractmethod
    def materialize_losses(self, lazy: Sequence[Any]) -> Array:
        """Return the mean losses of batches on every rank, which all call it, from the return
        values of `step`."""

    @abstractmethod
    def micro_batch_losses(self, lazy: Any) -> Array | None:
        """Return the mean losses of the micro-batches of one update from ``lazy``, the return value
        of its `step`; None if this rank computes no loss."""

    @abstractmethod
    def count_saved_bytes(self, on: bool) -> None:
        """Enable or disable counting of the bytes saved for backward passes
        (`Execution.max_saved_bytes`)."""
