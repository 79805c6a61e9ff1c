"""Base class of rules that draw shares from a Dirichlet distribution."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dualml.common.errors import UserError
from dualml.common.former_members import keep_former_members
from dualml.parallel.partition.base import Partition


@keep_former_members
@dataclass(frozen=True, kw_only=True)
class DirichletPartition(Partition):
    """Base of the rules whose shares are drawn from Dir(α, …, α); they redraw until every rank has
    at least ``least`` samples, at most ``tries`` times.

    Args:
        alpha: concentration α > 0; a large α is nearly uniform, a small one gives most samples to
            few ranks.
        least: minimum number of samples per rank; 0 allows ranks without samples.
        tries: maximum number of draws.
    """

    alpha: float
    least: int = 1
    tries: int = 1000

    def __post_init__(self) -> None:
        super().__post_init__()
        above = self.alpha > 0 and math.isfinite(self.alpha)
        self.require(above, "alpha must be above 0", "alpha")
        self.require(self.least >= 0, "least must be 0 or more", "least")
        self.require(self.tries >= 1, "at least one try", "tries")

    def sizes(self, n: int, ranks: int) -> None:
        """Return None: the sizes depend on the draw."""

    def draw_feasible_sizes(self, n: int, ranks: int, sizes: Callable[[], list[int]]) -> list[int]:
        """Call ``sizes``, which draws the size of each rank, until every rank has at least
        ``least`` samples, at most ``tries`` times; return that draw.

        Raises:
            UserError: ``n`` is below ``least`` · ``ranks``, or no draw gave every rank enough.
        """
        if self.least * ranks > n:
            raise UserError(
                f"{self.name}: {ranks} ranks with least = {self.least} samples each "
                f"need {self.least * ranks}; there are {n}"
            )
        best = 0
        for _ in range(self.tries):
            drawn = sizes()
            if min(drawn) >= self.least:
                return drawn
            best = max(best, min(drawn))
        raise UserError(
            f"{self.name}: in {self.tries} draws with alpha = {self.alpha:g} the smallest of "
            f"{ranks} ranks never had {self.least} of {n} samples (at best {best}); raise alpha, "
            "lower least, or set least = 0 to allow ranks without samples"
        )


def draw_proportions(draw: np.random.Generator, alpha: float, ranks: int) -> NDArray[np.float64]:
    """Return one draw from Dir(α, …, α), (ranks,). Where α is so small or so large that the gamma
    variates underflow or overflow, return the limit of the distribution: everything to one rank, or
    equal shares."""
    p = draw.dirichlet([alpha] * ranks)
    if not np.isfinite(p).all() or not math.isclose(p.sum(), 1, rel_tol=1e-6):
        if alpha > 1:
            return np.full(ranks, 1 / ranks)
        p = np.zeros(ranks)
        p[draw.integers(ranks)] = 1.0
    return p
