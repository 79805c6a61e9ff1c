"""Requirements on partitioning functions: many lists are requested, and properties of the rule are
checked, since the actual numbers are free."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dualml.course.exercise import RIGHT, Answer, Arrays, Call, Difference, Flags, Requirement
from dualml.course.lab3 import properties as p
from dualml.course.lab3.lists import Ask, Lists, kinds, unpacked
from dualml.course.lab3.mistakes import first_found

#: Number of epochs or seeds that are drawn to test statistical properties.
MANY = 300
#: Mistakes that make all other tests impossible.
UNUSABLE = ("draw_no_integers", "draw_from_one")
SIZES = ("deal_whole", "deal_dropped", "deal_padded", "deal_uneven")
#: Mistakes in a partition. If all ranks have one rank's part, their sizes are that part's, too.
PARTS = ("deal_whole", "draw_rank_ignored", *SIZES[1:], "deal_replaced", "deal_overlap")
Draw = np.random.Generator


@dataclass
class Open(Requirement):
    """Requirement with many right answers, of which properties are checked.

    Attributes:
        properties: properties that must hold; the first violated one is reported.
        flags: mistakes that may be the reason; the first one detected is reported.
    """

    name: str
    target: str
    holds: Sequence[p.Property]
    flags: Sequence[str] = ()
    points: float = 1.0
    errors: Sequence[tuple[str, str]] = ()

    def expected(self, call: Call, flags: Flags = RIGHT) -> list[Arrays]:
        raise ValueError("there are many right answers")

    tolerance = expected

    def lists(self, call: Call, arrays: Arrays) -> Lists:
        """Read the lists of an answer."""
        raise NotImplementedError

    def problem(self, call: Call, answer: Answer) -> tuple[Difference, tuple[str, ...]] | None:
        lists = self.lists(call, answer.arrays[0])
        for holds in (p.usable, *self.holds):
            seen = holds(lists)
            if seen is not None:
                difference = Difference(0, seen.what, None, seen.value, seen.expected)
                return difference, first_found((*UNUSABLE, *self.flags), lists)
        return None


def situations(draw: Draw) -> list[dict[str, Any]]:
    """Draw numbers of samples that the ranks cannot share evenly, with two or more left over."""
    size = [int(k) for k in draw.integers(7, 12, size=2)]
    return [{"n": 3 * size[0] + 2, "ranks": 3}, {"n": 4 * size[1] + int(draw.integers(2, 4)),
                                                 "ranks": 4}]  # fmt: skip


def two_seeds(draw: Draw) -> list[int]:
    """Draw two different seeds."""
    first = int(draw.integers(1, 1000))
    return [first, first + int(draw.integers(1, 1000))]


@dataclass
class Dealt(Open):
    """Requirement on the lists of a function of (n, ranks, rank, seed, epoch).

    Attributes:
        repeats_over: ``epochs``: many epochs of one seed on all ranks; ``seeds``: many seeds of one
            epoch on rank 0; empty: some epochs of two seeds, and every call twice.
    """

    many: str = ""

    def calls(self, draw: Draw) -> list[Call]:
        cases = situations(draw)
        if self.many:
            cases = cases[:1]
        return [Call("sample_lists", self.target, self.options(case, draw), [{}]) for case in cases]

    def options(self, case: dict[str, Any], draw: Draw) -> dict[str, Any]:
        seeds, epochs, ranks = two_seeds(draw), range(3), range(case["ranks"])
        if self.many == "epochs":
            seeds, epochs = seeds[:1], range(MANY)
        elif self.many == "seeds":
            seeds, epochs, ranks = list(range(seeds[0], seeds[0] + MANY)), range(1), range(1)
        asks = [[r, seed, epoch] for seed in seeds for epoch in epochs for r in ranks]
        return {"hyper": case, "asks": asks, "again": not self.many}

    def lists(self, call: Call, arrays: Arrays) -> Lists:
        case, asks = call.options["hyper"], [tuple(ask) for ask in call.options["asks"]]
        found = unpacked(arrays)
        first: dict[Ask, Any] = dict(zip(asks, found, strict=False))
        again = dict(zip(asks[::-1], found[len(asks) :], strict=True)) if len(
            found) > len(asks) else first  # fmt: skip

        def title(ask: Ask) -> str:
            """Return a call as the student would write it."""
            rank, seed, epoch = ask
            return f"{self.target}({case['n']}, {case['ranks']}, {rank=}, {seed=}, {epoch=})"

        return Lists(case["n"], case["ranks"], first, again, *kinds(arrays),
                     bool(arrays["touched"]), title)  # fmt: skip


def of_functions() -> list[Requirement]:
    """Return the requirements on `random_sampling` and `random_partition`."""
    sampling, partition = "random_sampling", "random_partition"
    unsteady = "draw_not_repeatable"
    return [
        Dealt("sampling.sizes", sampling, [p.even_sizes], SIZES),
        Dealt("sampling.repeatable", sampling, [p.repeatable, p.untouched],
              [unsteady, "draw_global"]),
        Dealt("sampling.ranks", sampling, [p.ranks_differ],
              ["draw_rank_ignored", "draw_seeds_added"]),
        Dealt("sampling.epochs", sampling, [p.epochs_differ, p.seeds_differ],
              ["draw_epoch_ignored", "draw_seed_ignored"]),
        Dealt("sampling.replacement", sampling, [p.repeated], ["draw_never_twice"], many="epochs"),
        Dealt("sampling.uniform", sampling, [p.uniform],
              ["draw_epoch_ignored", "draw_own_part", "draw_ends_missing"], many="epochs"),
        Dealt("partition.once", partition, [p.even_sizes, p.every_once],
              [unsteady, *PARTS]),
        Dealt("partition.repeatable", partition, [p.repeatable, p.untouched],
              [unsteady, "draw_global"]),
        Dealt("partition.kept", partition, [p.kept], [unsteady, "deal_each_epoch"]),
        Dealt("partition.order", partition, [p.unsorted, p.epochs_differ],
              ["deal_sorted", "deal_order_fixed"]),
        Dealt("partition.random", partition, [p.seeds_deal_otherwise, p.dealt_uniformly],
              ["deal_whole", "deal_strided", "deal_blocks", "draw_seed_ignored"], many="seeds"),
    ]  # fmt: skip
