"""Requirement on the division of a batch in proportion to speed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dualml.course.bottleneck import rules
from dualml.course.exercise import (
    RIGHT,
    Answer,
    Array,
    Arrays,
    Difference,
    ExerciseCall,
    Flags,
    Requirement,
)
from dualml.course.mistakes import mistake_groups

(SPLIT,) = mistake_groups("bottleneck", "split")


@dataclass
class SplitRequirement(Requirement):
    """Requirement on sizes in proportion to speed, less than one sample from the ideal ones."""

    name: str
    flags: Sequence[str] = SPLIT
    target: str = "split_batch"

    def calls(self, draw: np.random.Generator) -> list[ExerciseCall]:
        """Make one call with six batches for 3 to 5 ranks whose rounded sizes do not add up."""
        asks: list[list[Any]] = []
        while len(asks) < 6:
            ranks = 3 + len(asks) % 3
            n = int(draw.integers(40, 90))
            seconds = [float(s) for s in draw.uniform(0.01, 0.05, ranks).round(3)]
            ideal = rules.ideal_sizes(n, seconds)
            over = n - np.floor(ideal).sum()
            if over >= 2 and np.round(ideal).sum() != n and np.ptp(ideal) > 3:
                asks.append([n, seconds])
        return [ExerciseCall("split", self.target, {"asks": asks, "hyper": {}}, [{}])]

    def expected(self, call: ExerciseCall, flags: Flags = RIGHT) -> list[Arrays]:
        """Raise `ValueError`, since several roundings are right; so does `tolerance`."""
        raise ValueError("several roundings are right")

    tolerance = expected

    def problem(
        self, call: ExerciseCall, answer: Answer
    ) -> tuple[Difference, tuple[str, ...]] | None:
        """Return the first batch that is shared wrongly, as a difference, and the mistake that
        explains all sizes, in a tuple; None if every batch is shared rightly."""
        arrays = answer.arrays[0]
        found = [arrays[str(i)] for i in range(len(call.options["asks"]))]
        wrong = None
        for (n, seconds), sizes in zip(call.options["asks"], found, strict=True):
            ideal = rules.ideal_sizes(n, seconds)
            right = ", ".join(f"{v:.2f}" for v in ideal)
            fits = len(sizes) == len(ideal) and np.all(np.abs(sizes - ideal) < 1 + 1e-9)
            if not fits or sizes.sum() != n or not bool(arrays["integers"]):
                where = f"split_batch({n}, {seconds})"
                expected = f"integers within 1 of [{right}], sum {n}"
                wrong = Difference(0, where, None, [float(s) for s in sizes[:8]], expected)
                break
        if wrong is None:
            return None
        return wrong, find_mistake(self.flags, call.options["asks"], found)


def find_mistake(
    flags: Sequence[str], asks: Sequence[tuple[int, Sequence[float]]], found: Sequence[Array]
) -> tuple[str, ...]:
    """Return the first of the typical mistakes named in ``flags`` that gives all the sizes
    ``found``, in a tuple; an empty tuple if none does."""
    for flag in flags:
        for (n, seconds), sizes in zip(asks, found, strict=True):
            if len(sizes) != len(seconds):
                return ()
            if flag == "bn_split_inverse":
                same = rules.is_inverse(n, seconds, sizes)
            else:
                same = np.allclose(rules.mistaken_sizes(n, seconds, flag), sizes)
            if not same:
                break
        else:
            return (flag,)
    return ()
