"""Requirements on a loader: many orders are right, so that their properties are looked at."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np

from dualml.course.exercise import (
    RIGHT,
    Answer,
    Arrays,
    Difference,
    ExerciseCall,
    Flags,
    Requirement,
)
from dualml.course.loader import properties as p
from dualml.course.loader.mistakes import find_mistake
from dualml.course.loader.runs import read_run
from dualml.course.mistakes import mistake_groups

#: Epoch 1 occurs twice, because a loader must be able to return to it.
EPOCHS = (0, 1, 2, 1)
PARTS, DROP, BATCHES, EPOCH_FLAGS, SEEDS, REPEATED, RESUME = mistake_groups(
    "loader", "parts", "drop", "batches", "epochs", "seeds", "again", "resume"
)


@dataclass
class LoaderRequirement(Requirement):
    """Requirement on loaders of all ranks, with three seeds, in some epochs.

    Attributes:
        properties: properties that must hold; the first violated one is reported.
        flags: mistakes that may be the reason; the first one detected is reported.
        cases: value of ``drop_last`` and whether only some ranks lack a sample for a full last
            batch, of a call each.
        resume: whether the state is taken in the middle of epochs.
    """

    name: str
    properties: Sequence[p.Property]
    flags: Sequence[str]
    cases: Sequence[tuple[bool, bool]] = ((False, False),)
    resume: bool = False
    errors: Sequence[tuple[str, str]] = ()
    target: str = "Loader"

    def calls(self, draw: np.random.Generator) -> list[ExerciseCall]:
        """Make a call for each of the ``cases``."""
        return [self.make_call(draw, *case) for case in self.cases]

    def make_call(self, draw: np.random.Generator, drop_last: bool, nearly: bool) -> ExerciseCall:
        """Make a call with loaders of all ranks and three seeds, two of which are neighbours;
        ``nearly`` says whether only some ranks lack a sample for a full last batch."""
        ranks = int(draw.integers(3, 5))
        batch = ranks + int(draw.integers(1, 3))
        # One to ranks − 1 samples fewer than whole batches on all ranks: some ranks miss one each.
        n = ranks * batch * 4 - int(draw.integers(1, ranks))
        if not nearly:
            n -= ranks * int(draw.integers(2, batch - 1))  # the last batches are smaller
        seed = int(draw.integers(1, 1000))
        seeds = [seed, seed + 1, seed + 1 + int(draw.integers(5, 1000))]
        after = sorted(int(k) for k in draw.choice(np.arange(1, 4), 2, replace=False))
        hyper = {"n": n, "batch": batch, "ranks": ranks, "drop_last": drop_last}
        options = {
            "hyper": hyper,
            "asks": [list(ask) for ask in product(range(ranks), seeds)],
            "epochs": list(EPOCHS),
            "resumed": [[1, after[0]], [1, after[1]]] if self.resume else [],
        }
        values = draw.permutation(10 * n)[:n].astype(np.float32)
        x = np.stack([values, np.asarray(draw.normal(size=n), np.float32)], 1)
        y = draw.permutation(10 * n)[:n].astype(np.int32)
        return ExerciseCall("loader", self.target, options, [{"x": x, "y": y}])

    def expected(self, call: ExerciseCall, flags: Flags = RIGHT) -> list[Arrays]:
        """Raise `ValueError`, since there are many right answers; so does `tolerance`."""
        raise ValueError("there are many right answers")

    tolerance = expected

    def problem(
        self, call: ExerciseCall, answer: Answer
    ) -> tuple[Difference, tuple[str, ...]] | None:
        """Return the first violated property as a difference, and the mistake that explains it;
        None if all hold."""
        run = read_run(call, answer.arrays[0])
        for holds in (p.check_rows, *self.properties):
            seen = holds(run)
            if seen is not None:
                difference = Difference(0, seen.what, None, seen.value, seen.expected)
                return difference, find_mistake(("load_unpaired", *self.flags), run)
        return None

    def inputs(self, call: ExerciseCall, difference: Difference) -> dict[str, Any]:
        """Return the number of samples n."""
        return {"n": call.options["hyper"]["n"]}


REQUIREMENTS: Sequence[Requirement] = (
    LoaderRequirement("loader.parts", (p.check_shares, p.check_coverage), PARTS),
    LoaderRequirement(
        "loader.drop",
        (p.check_shares, p.check_coverage),
        (*PARTS[:3], *DROP, *PARTS[3:]),
        cases=((True, False), (True, True)),
    ),
    LoaderRequirement(
        "loader.batches",
        (p.check_batches, p.check_lengths),
        BATCHES,
        cases=((False, False), (True, True)),
    ),
    LoaderRequirement(
        "loader.epochs",
        (p.check_unsorted, p.check_epochs_differ, p.check_parts_differ),
        EPOCH_FLAGS,
    ),
    LoaderRequirement("loader.seeds", (p.check_seeds_differ,), SEEDS),
    LoaderRequirement("loader.again", (p.check_repeatable, p.check_generators), REPEATED),
    LoaderRequirement(
        "loader.resume",
        (p.check_resumption,),
        RESUME,
        resume=True,
        errors=(("TypeError: .*JSON serializable", "state_not_plain"),),
    ),
)
