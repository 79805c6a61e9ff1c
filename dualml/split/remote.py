"""A split model as a trial sees it."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, Protocol

from dualml.aggregation.slow import Slow
from dualml.backend import Array, Observable, Training
from dualml.split.plan import SplitPlan
from dualml.split.timeline import Timeline


class Execution(Protocol):
    """What is set for, and asked of, whoever executes a split.

    Attributes:
        seed: of the trial: what masks and orders are drawn from.
        slow: the handicap of a rank of the trial.
        live: most micro-batches at once between their forward and backward pass, so far.
        held: most bytes kept for backward passes, while they were counted.
    """

    plan: SplitPlan
    timeline: Timeline
    seed: int
    slow: Slow | None
    live: int
    held: int


class SplitModel(Training, Observable):
    """A model that ranks share, as one of them sees it.

    Attributes:
        calls: how the stages are called, for the records; empty where they send messages.
    """

    executor: Execution
    calls: str = ""

    @abstractmethod
    def read(self, lazy: Sequence[Any]) -> Array:
        """Mean losses of batches on every rank, from what `step` returned."""

    @abstractmethod
    def each_loss(self, lazy: Any) -> Array | None:
        """Mean losses of the micro-batches of one update; None where this rank has none of them."""

    @abstractmethod
    def count_kept(self, on: bool) -> None:
        """Whether `Execution.held` counts from now on."""
