"""Gradients that are the sum over the ranks when a rank has them: a framework's own training in
parallel, or buckets sent while the others are computed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dualml.aggregation.all_reduce import AllReduce
from dualml.aggregation.base import Strategy
from dualml.aggregation.parallel import DataParallel
from dualml.aggregation.settings import Aggregation
from dualml.backend import Array, Arrays, Backend, Training
from dualml.backend.ability import Summing, Tensor


class Summed(DataParallel):
    """The pieces add up; see `dualml.backend.ability.Summing`.

    What is waited for and transferred before the last gradient is there counts as computing: nobody
    outside the framework could tell them apart. A rank that is slow at computing sleeps between its
    gradient and the sum, where its share of the messages may have been sent already; the others
    then wait for it in the next update.
    """

    def __init__(
        self, backend: Backend, training: Training, pieces: Summing, *rest: Any, **options: Any
    ) -> None:
        super().__init__(backend, training, pieces, *rest, **options)
        self.summing = pieces

    @property
    def detail(self) -> str:
        """What adds up, for the records."""
        return self.summing.detail

    def strategy_of(self, settings: Aggregation) -> Strategy:
        """What it amounts to, in messages and bytes."""
        return AllReduce()

    @property
    def by_message(self) -> bool:
        """The framework sends them; they cannot be late one by one."""
        return False

    def own_gradient(self, batch: Array | Sequence[Array]) -> Arrays:
        """When it can be seen it is the sum already."""
        return {}

    def combine(self, gradients: list[Tensor], share: float) -> list[Tensor]:
        return self.summing.settle(gradients)
