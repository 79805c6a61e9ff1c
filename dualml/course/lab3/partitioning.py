"""Requirements on partitioning functions: many lists are requested, and properties of the rule are
checked, since the actual numbers are free."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
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
from dualml.course.lab3 import properties as p
from dualml.course.lab3.lists import Ask, SampleLists, list_types, unpack_lists
from dualml.course.lab3.mistakes import find_mistake
from dualml.course.lab3.orders import check_epochs_of_seeds_differ, check_order_changes_follow_seed

#: Number of epochs or seeds that are drawn to test statistical properties.
STATISTICS_DRAWS = 300
#: Mistakes that make all other tests impossible.
UNUSABLE = ("draw_no_integers", "draw_from_one")
SIZES = (
    *("deal_whole", "deal_dropped", "deal_padded", "deal_ceiling", "deal_uneven"),
    "deal_borders",
)
#: Mistakes in a partition. If all ranks have one rank's part, their sizes are that part's, too.
PARTS = (
    *("deal_whole", "draw_rank_ignored", *SIZES[1:-1], "deal_replaced", "deal_overlap"),
    "deal_borders",
)
#: Mistakes in the order in which a rank goes through its part.
ORDERS = (
    *("deal_sorted", "deal_order_fixed", "deal_order_repeated", "deal_order_seedless"),
    *("draw_seeds_added", "draw_epochs_shifted"),
)
Draw = np.random.Generator


@dataclass
class PropertyRequirement(Requirement):
    """Requirement with many right answers, of which properties are checked.

    Attributes:
        properties: properties that must hold; the first violated one is reported.
        flags: mistakes that may be the reason; the first one detected is reported.
    """

    name: str
    target: str
    properties: Sequence[p.Property]
    flags: Sequence[str] = ()

    def expected(self, call: ExerciseCall, flags: Flags = RIGHT) -> list[Arrays]:
        """Raise `ValueError`, since there are many right answers; so does `tolerance`."""
        raise ValueError("there are many right answers")

    tolerance = expected

    def read_lists(self, call: ExerciseCall, arrays: Arrays) -> SampleLists:
        """Unpack the arrays of an answer to the sample lists of its call."""
        raise NotImplementedError

    def problem(
        self, call: ExerciseCall, answer: Answer
    ) -> tuple[Difference, tuple[str, ...]] | None:
        """Return the first violated property as a difference, and the mistake that explains it;
        None if all hold."""
        lists = self.read_lists(call, answer.arrays[0])
        for holds in (p.check_indices, *self.properties):
            seen = holds(lists)
            if seen is not None:
                difference = Difference(0, seen.what, None, seen.value, seen.expected)
                return difference, find_mistake((*UNUSABLE, *self.flags), lists)
        return None


#: Sizes of parts, at least and below: of large ones two random orders, or two random parts, are
#: never the same by chance; of small ones a sample is drawn often enough to count how often.
LARGE, SMALL = (20, 28), (7, 12)


def draw_cases(draw: Draw, sizes: tuple[int, int] = LARGE) -> list[dict[str, Any]]:
    """Draw a case for 3 ranks and one for 4: numbers of samples ``n`` that the ``ranks`` cannot
    share evenly, with two left over, and parts of these ``sizes``."""
    size = [int(k) for k in draw.integers(*sizes, size=2)]
    return [
        {"n": 3 * size[0] + 2, "ranks": 3},
        {"n": 4 * size[1] + 2, "ranks": 4},
    ]


def draw_two_seeds(draw: Draw) -> list[int]:
    """Draw a seed, and return it and the next one, of which sums with a rank or an epoch can be
    equal."""
    first = int(draw.integers(1, 1000))
    return [first, first + 1]


@dataclass
class PartitionRequirement(PropertyRequirement):
    """Requirement on the lists of a function of (n, ranks, rank, seed, epoch).

    Attributes:
        repeats_over: ``epochs``: many epochs of one seed on all ranks; ``seeds``: many seeds of one
            epoch on rank 0; empty: some epochs of two seeds, and every call twice.
    """

    repeats_over: str = ""

    def calls(self, draw: Draw) -> list[ExerciseCall]:
        """Make a call for 3 and one for 4 ranks; with ``repeats_over`` only that for 3."""
        cases = draw_cases(draw, SMALL if self.repeats_over == "epochs" else LARGE)
        if self.repeats_over:
            cases = cases[:1]
        return [
            ExerciseCall("sample_lists", self.target, self.options(case, draw), [{}])
            for case in cases
        ]

    def options(self, case: dict[str, Any], draw: Draw) -> dict[str, Any]:
        """Return the options of one call: ``case``, and the (rank, seed, epoch) to ask for, twice
        each unless ``repeats_over``."""
        seeds, epochs, ranks = draw_two_seeds(draw), range(3), range(case["ranks"])
        if self.repeats_over == "epochs":
            seeds, epochs = seeds[:1], range(STATISTICS_DRAWS)
        elif self.repeats_over == "seeds":
            seeds, epochs, ranks = (
                list(range(seeds[0], seeds[0] + STATISTICS_DRAWS)),
                range(1),
                range(1),
            )
        asks = [[r, seed, epoch] for seed in seeds for epoch in epochs for r in ranks]
        return {"hyper": case, "asks": asks, "again": not self.repeats_over}

    def read_lists(self, call: ExerciseCall, arrays: Arrays) -> SampleLists:
        """Unpack the lists of the first and the repeated calls, by (rank, seed, epoch)."""
        case, asks = call.options["hyper"], [tuple(ask) for ask in call.options["asks"]]
        found = unpack_lists(arrays)
        first: dict[Ask, Any] = dict(zip(asks, found, strict=False))
        again = (
            dict(zip(asks[::-1], found[len(asks) :], strict=True))
            if len(found) > len(asks)
            else first
        )

        def title(ask: Ask) -> str:
            """Return a call as the student would write it."""
            rank, seed, epoch = ask
            return f"{self.target}({case['n']}, {case['ranks']}, {rank=}, {seed=}, {epoch=})"

        return SampleLists(
            case["n"],
            case["ranks"],
            first,
            again,
            *list_types(arrays),
            bool(arrays["touched"]),
            title,
        )


def function_requirements() -> list[Requirement]:
    """Return the requirements on `random_sampling` and `random_partition`."""
    sampling, partition = "random_sampling", "random_partition"
    unsteady = "draw_not_repeatable"
    return [
        PartitionRequirement("sampling.sizes", sampling, [p.check_sizes], SIZES),
        PartitionRequirement(
            "sampling.repeatable",
            sampling,
            [p.check_repeatable, p.check_global_rng],
            [unsteady, "draw_global"],
        ),
        PartitionRequirement(
            "sampling.ranks",
            sampling,
            [p.check_ranks_differ],
            ["draw_rank_ignored", "draw_seeds_added"],
        ),
        PartitionRequirement(
            "sampling.epochs",
            sampling,
            [p.check_epochs_differ, p.check_seeds_differ, check_epochs_of_seeds_differ],
            ["draw_epoch_ignored", "draw_seed_ignored", "draw_seeds_added", "draw_epochs_shifted"],
        ),
        PartitionRequirement(
            "sampling.replacement",
            sampling,
            [p.check_replacement],
            ["draw_epoch_ignored", "draw_reordered", "draw_never_twice"],
            repeats_over="epochs",
        ),
        PartitionRequirement(
            "sampling.uniform",
            sampling,
            [p.check_uniform],
            [
                "draw_epoch_ignored",
                "draw_reordered",
                "draw_own_part",
                "draw_ends_missing",
                "draw_ends_rare",
                "draw_not_uniform",
            ],
            repeats_over="epochs",
        ),
        PartitionRequirement(
            "partition.once", partition, [p.check_sizes, p.check_coverage], [unsteady, *PARTS]
        ),
        PartitionRequirement(
            "partition.repeatable",
            partition,
            [p.check_repeatable, p.check_global_rng],
            [unsteady, "draw_global"],
        ),
        PartitionRequirement(
            "partition.kept", partition, [p.check_same_samples], [unsteady, "deal_each_epoch"]
        ),
        PartitionRequirement(
            "partition.order",
            partition,
            [p.check_unsorted, p.check_epochs_differ, check_order_changes_follow_seed],
            ORDERS,
        ),
        PartitionRequirement(
            "partition.random",
            partition,
            [p.check_seeds_repartition, p.check_uniform_partition],
            ["deal_whole", "deal_strided", "deal_blocks", "draw_seed_ignored"],
            repeats_over="seeds",
        ),
    ]
