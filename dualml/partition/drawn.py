"""What rules that draw shares from a Dirichlet distribution have in common."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dualml.errors import UserError
from dualml.partition.base import Partition


@dataclass(frozen=True, kw_only=True)
class Drawn(Partition):
    """Draws again until every rank has ``least`` samples, ``tries`` times at most.

    Args:
        alpha: concentration α > 0; large is uniform, small gives most to few.
        least: samples that every rank must have; 0 allows ranks with none.
        tries: draws before it gives up.
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
        """Left to chance."""

    def feasible(self, n: int, ranks: int, sizes: Callable[[], list[int]]) -> list[int]:
        """The first sizes that give every rank enough.

        Raises:
            UserError: they cannot, or they did not in so many tries.
        """
        if self.least * ranks > n:
            raise UserError(f"{self.name}: {ranks} ranks with least = {self.least} samples each "
                            f"need {self.least * ranks}; there are {n}")  # fmt: skip
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


def proportions(draw: np.random.Generator, alpha: float, ranks: int) -> NDArray[np.float64]:
    """One draw from Dir(α, …, α). Where α is so small or so large that the gamma variates underflow
    or overflow, what the distribution tends to: everything to one of them, or equal shares."""
    p = draw.dirichlet([alpha] * ranks)
    if not np.isfinite(p).all() or not math.isclose(p.sum(), 1, rel_tol=1e-6):
        if alpha > 1:
            return np.full(ranks, 1 / ranks)
        p = np.zeros(ranks)
        p[draw.integers(ranks)] = 1.0
    return p
