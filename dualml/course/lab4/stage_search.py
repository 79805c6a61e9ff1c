"""Search for mistakes of two pipeline stages that differ from rank to rank.

In the first update what a rank computes depends little on the other rank's mistakes. So mistakes of
rank 1 are found by its weights, those of the loss by the loss, and then those of rank 0 by its
weights, instead of trying all combinations.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice

import numpy as np

from dualml.course.computed import max_finite
from dualml.course.exercise import RIGHT, Arrays, ExerciseCall, Flags
from dualml.course.judge import agrees
from dualml.course.lab4.stages import train_stages

#: Largest difference, as a part of the largest number, at which a mistake is not ruled out.
ROUGH = 1e-3
WEIGHTS, LOSS = ("1/weight", "1/bias"), ("1/loss",)
#: Largest number of combinations that are looked at in full.
MAX_COMBINATIONS = 300


def first_update(call: ExerciseCall, flags: Flags) -> list[Arrays]:
    """Compute each rank's results of the first update, with the mistakes ``flags``."""
    return list(train_stages({**call.options, "steps": 1}, call.arrays, flags))


def rough_tolerance(made: Sequence[Arrays]) -> list[Arrays]:
    """Return for each array `ROUGH` times the largest number of all."""
    largest = max((max_finite(a) for own in made for a in own.values()), default=0.0)
    return [dict.fromkeys(own, np.asarray(ROUGH * max(largest, ROUGH))) for own in made]


def combine_sides(
    call: ExerciseCall, arrays: Sequence[Arrays], stages: Sequence[str], losses: Sequence[str]
) -> Iterator[Flags]:
    """Yield sets of two or three mistakes, one of each rank and one of the loss, that explain the
    first update of an answer.

    Args:
        call, arrays: the call, and each rank's results of it.
        stages, losses: mistakes of the stages and of the returned loss.
    """

    def fits(flags: Flags, rank: int, keys: Sequence[str]) -> bool:
        """Return whether mistakes explain these results of a rank."""
        made = first_update(call, flags)
        most = rough_tolerance(made)
        wanted, allowed = ({k: own[rank][k] for k in keys} for own in (made, most))
        return agrees([arrays[rank]], [wanted], [allowed])

    def sides(rank: int) -> list[Flags]:
        """Return the mistakes of one rank, among them none."""
        return [RIGHT, *(frozenset({f"{name}@rank={rank}"}) for name in stages)]

    about_loss = [RIGHT, *(frozenset({name}) for name in losses)]

    def combinations() -> Iterator[Flags]:
        """Yield all sets that explain the first update."""
        for second in sides(1):
            if not fits(second, 1, WEIGHTS):
                continue
            told = [loss for loss in about_loss if fits(second | loss, 1, LOSS)]
            if not told:
                continue
            for first in sides(0):
                if fits(first | second, 0, WEIGHTS):
                    yield from (first | second | loss for loss in told)

    yield from islice((found for found in combinations() if len(found) > 1), MAX_COMBINATIONS)
