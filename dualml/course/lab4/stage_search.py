"""Search for mistakes of two pipeline stages that differ from rank to rank.

In the first update what a rank computes depends little on the other rank's mistakes. So mistakes of
rank 1 are found by its weights, those of the loss by the loss, and then those of rank 0 by its
weights, instead of trying all combinations.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice

from dualml.course.exercise import RIGHT, Arrays, ExerciseCall, Flags
from dualml.course.lab4.layer_requirements import is_near
from dualml.course.lab4.stages import train_stages

WEIGHTS, LOSS = ("1/weight", "1/bias"), ("1/loss",)
#: Largest number of combinations that are looked at in full.
MAX_COMBINATIONS = 300


def first_update(call: ExerciseCall, flags: Flags) -> list[Arrays]:
    """Compute each rank's results of the first update, with the typical mistakes named in
    ``flags``."""
    return list(train_stages({**call.options, "steps": 1}, call.arrays, flags))


def combine_sides(
    call: ExerciseCall, arrays: Sequence[Arrays], stages: Sequence[str], losses: Sequence[str]
) -> Iterator[Flags]:
    """Yield sets of two or three mistakes, at most one of each rank and one of the loss, that
    explain the first update of an answer; at most `MAX_COMBINATIONS` sets.

    Args:
        call, arrays: the call, and each rank's results of it.
        stages, losses: mistakes of the stages and of the returned loss.
    """

    def fits(flags: Flags, rank: int, keys: Sequence[str]) -> bool:
        """Return whether mistakes explain these results of a rank."""
        made = first_update(call, flags)[rank]
        return is_near([arrays[rank]], [{key: made[key] for key in keys}])

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
