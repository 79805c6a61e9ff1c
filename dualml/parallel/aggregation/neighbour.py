"""Gossip averaging with the two neighbours on a ring; no rank ever holds the whole sum."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from dualml.algorithms.communicator.base import Communicator
from dualml.parallel.aggregation.base import STRATEGIES, Strategy, Tensor, execute_schedule
from dualml.parallel.aggregation.schedule import CollectiveSchedule, StepGroup, Transfer


@STRATEGIES.register("neighbour", 90)
@dataclass(frozen=True)
class Neighbour(Strategy):
    """Averages with both neighbours on a ring: x_i ← (x_{i−1} + x_i + x_{i+1}) / 3; two ranks take
    their mean.

    Each rank communicates with two others for any n, and a slow rank delays only its neighbours.
    The weights are doubly stochastic: the mean over all ranks does not change, and the ranks
    approach it. `sum` returns n times the neighbours' mean, so that dividing by n gives the rule.

    Source: Lian et al. 2017, "Can Decentralized Algorithms Outperform Centralized Algorithms?",
    NeurIPS, algorithm 1 (D-PSGD).
    """

    formulas: ClassVar = (r"m = 2", r"b = 2 S", r"T = 2 ( \alpha + S \beta )")
    exact: ClassVar[bool] = False

    def sum(self, comm: Communicator, x: Tensor) -> Tensor:
        """Return n times the mean of this rank's and its neighbours' vectors, for two ranks that of
        both. ``x`` may be overwritten."""
        n = comm.size
        x = execute_schedule(self.schedule(n), comm, x)
        return comm.scale(x, n / min(n, 3))

    def schedule(self, n: int) -> CollectiveSchedule:
        """Return one step in which every rank sends its whole vector to both neighbours; no step
        for one rank."""
        pairs = sorted({(r, (r + shift) % n) for r in range(n) for shift in (1, -1)})
        step = tuple(Transfer(a, b, 0, 0, "add") for a, b in pairs if a != b)
        return CollectiveSchedule(n, 1, (step,) if step else ())

    def step_groups(self, n: int, length: int) -> list[StepGroup]:
        """Return one group: a step with one message to each neighbour, one message if n is 2."""
        m = min(n - 1, 2)
        return [StepGroup("both", 1, m, m * length, m * length, n * m * length, n * m)]

    def max_rank_volume(self, n: int, length: int) -> tuple[int, int]:
        """Return the messages, one to each neighbour, and their elements: 2 · ``length``, for two
        ranks ``length``."""
        m = min(n - 1, 2)
        return m, m * length
