"""Requirements on a `Sampler`, by itself and in the framework's own loader."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np

from dualml.course.drive_lab3 import LOOPS
from dualml.course.exercise import Arrays, ExerciseCall, Requirement
from dualml.course.lab3 import properties as p
from dualml.course.lab3.lists import Ask, SampleLists, Violation, list_types, unpack_lists
from dualml.course.lab3.orders import check_epochs_of_seeds_differ, check_order_changes_follow_seed
from dualml.course.lab3.partitioning import (
    ORDERS,
    PARTS,
    SIZES,
    Draw,
    PropertyRequirement,
    draw_cases,
    draw_two_seeds,
)

#: Epoch 1 occurs twice, because a sampler must be able to return to it.
EPOCHS = (0, 1, 2, 1)
#: Epochs of draws, enough to count how often each sample is drawn.
DRAWS = (*EPOCHS, *range(3, 40))
#: Samples of a mini-batch of the loader; the last one has fewer.
BATCH = 4


def check_loader(lists: SampleLists) -> Violation | None:
    """Check that the framework's loader returns the samples of a loop over the sampler. Return the
    first violation, or None."""
    for ask, a in lists.first.items():
        if not np.array_equal(a, lists.loaded[ask]):
            shown = format_samples(lists.loaded[ask]), format_samples(a)
            return Violation(f"loader({lists.title(ask)})", *shown)
    return None


def check_fresh_sampler(lists: SampleLists) -> Violation | None:
    """Check that a sampler made for this epoch gives the same samples as an older one; in epoch 0,
    that it does without `set_epoch`. Return the first violation, or None."""
    for ask, a in lists.first.items():
        new = lists.fresh[ask]
        if not np.array_equal(a, new):
            if ask[2]:
                return Violation(lists.title(ask), format_samples(a), format_samples(new))
            unset = lists.title(ask).replace(".set_epoch(0)", "")
            return Violation(unset, format_samples(new), format_samples(a))
    return None


def format_samples(a: Any) -> str:
    """Format the first six samples of a list, with an ellipsis if there are more."""
    return "[" + ", ".join(str(int(i)) for i in a[:6]) + (", …]" if len(a) > 6 else "]")


def check_length(lists: SampleLists) -> Violation | None:
    """Check that ``len`` is the number of samples; while the loop is not written, that the lengths
    of all ranks are those of nearly equal parts. Return the first violation, or None."""
    if lists.unwritten:
        right = [len(a) for a in np.array_split(np.arange(lists.n), lists.ranks)]
        for seed, epoch in lists.seed_epoch_pairs():
            sizes = [lists.lengths[rank, seed, epoch] for rank in lists.asked_ranks]
            if sorted(sizes, reverse=True) != right:
                some = lists.title((0, seed, epoch)).replace("rank=0", "rank=r")
                return Violation(f"[len({some}) for r in range({lists.ranks})]", sizes, right)
        return None
    for ask, a in lists.first.items():
        if lists.lengths[ask] != len(a):
            return Violation(f"len({lists.title(ask)})", lists.lengths[ask], len(a))
    return None


@dataclass
class SamplerRequirement(PropertyRequirement):
    """Requirement on samplers of all ranks, with two seeds, in some epochs.

    Attributes:
        kind: ``partition`` or ``sampling``.
        load: whether they are used in the framework's loader.
        epochs: epochs that are set, one after the other; the fourth repeats the second.
        lengths: whether only ``len`` counts, for which the loop need not be written yet.
    """

    kind: str = "partition"
    load: bool = False
    epochs: Sequence[int] = EPOCHS
    lengths: bool = False

    def calls(self, draw: Draw) -> list[ExerciseCall]:
        """Make one call with samplers of all ranks and two seeds, each used in the ``epochs``."""
        case = draw_cases(draw)[-1]
        hyper = {**case, "kind": self.kind}
        asks = [list(ask) for ask in product(range(case["ranks"]), draw_two_seeds(draw))]
        options = {
            "hyper": hyper,
            "asks": asks,
            "epochs": list(self.epochs),
            "batch": BATCH,
            "load": self.load,
            "lengths": self.lengths,
        }
        return [ExerciseCall("sampler", self.target, options, [{}])]

    def read_lists(self, call: ExerciseCall, arrays: Arrays) -> SampleLists:
        """Unpack the lists by (rank, seed, epoch): of two loops, of a fresh sampler and of the
        loader, with their lengths. If both loops gave the same, the repetition of an epoch replaces
        the second one."""
        case = call.options["hyper"]
        asks = [(rank, seed, epoch) for rank, seed in call.options["asks"] for epoch in self.epochs]
        found = {name: unpack_lists(arrays, f"{name}/") for name in LOOPS}

        def title(ask: Ask) -> str:
            """Return a sampler as the student would write it."""
            rank, seed, epoch = ask
            return (
                f"Sampler({case['n']}, {case['ranks']}, {rank=}, {seed=}, kind={self.kind!r})"
                f".set_epoch({epoch})"
            )

        # A repeated epoch must give the same list.
        back = len(EPOCHS) - 1
        every: dict[str, dict[Ask, Any]] = {name: {} for name in LOOPS}
        first, again = every["first"], every["again"]
        lengths: dict[Ask, int] = {}
        for number, ask in enumerate(asks):
            place = number % len(self.epochs)
            if place == back and np.array_equal(first[ask], again[ask]):
                again[ask] = found["first"][number]
            elif place != back:
                for name, lists in found.items():
                    every[name][ask] = lists[number]
                lengths[ask] = int(arrays["lengths"][number])
        return SampleLists(
            case["n"],
            case["ranks"],
            first,
            again,
            *list_types(arrays, "first/"),
            bool(arrays["touched"]),
            title,
            every["loaded"],
            every["fresh"],
            lengths,
            every["apart"],
            bool(arrays["unwritten"]),
        )


def sampler_requirements() -> list[Requirement]:
    """Return the requirements on `Sampler`."""
    target, spent, on = "Sampler", "sampler_exhausted", "sampler_goes_on"
    unsteady: Sequence[str] = (
        *(spent, "sampler_shared_state", "sampler_epoch_late", "draw_not_repeatable"),
        *("sampler_counts_epochs", on),
    )
    return [
        SamplerRequirement(
            "sampler.parts", target, [p.check_sizes, p.check_coverage], [*unsteady, *PARTS]
        ),
        SamplerRequirement(
            "sampler.epochs",
            target,
            [
                p.check_same_samples,
                p.check_unsorted,
                p.check_epochs_differ,
                check_order_changes_follow_seed,
            ],
            [*unsteady, "deal_each_epoch", "deal_sorted", "sampler_epoch_ignored", *ORDERS],
        ),
        SamplerRequirement(
            "sampler.seeds",
            target,
            [p.check_seeds_repartition],
            [spent, "deal_strided", "deal_blocks", "draw_seed_ignored"],
        ),
        SamplerRequirement(
            "sampler.sampling",
            target,
            [
                p.check_sizes,
                p.check_replacement,
                p.check_ranks_differ,
                p.check_epochs_differ,
                p.check_seeds_differ,
                check_epochs_of_seeds_differ,
                p.check_every_sample_drawn,
                p.check_uniform,
            ],
            [
                spent,
                "sampler_shared_state",
                "sampler_epoch_late",
                "sampler_kind_ignored",
                *SIZES,
                "draw_rank_ignored",
                "sampler_epoch_ignored",
                "draw_seed_ignored",
                "draw_seeds_added",
                "draw_epochs_shifted",
                "draw_reordered",
                "draw_own_part",
                "draw_ends_missing",
                "draw_ends_rare",
                "draw_not_uniform",
            ],
            kind="sampling",
            epochs=DRAWS,
        ),
        SamplerRequirement(
            "sampler.again",
            target,
            [p.check_repeatable, check_fresh_sampler, p.check_global_rng],
            ["sampler_unset", *unsteady, "draw_global", "sampler_epoch_ignored"],
        ),
        SamplerRequirement(
            "sampler.length", target, [check_length], [spent, "sampler_length"], lengths=True
        ),
        SamplerRequirement(
            "sampler.loader", target, [check_loader], [*unsteady, "sampler_length"], load=True
        ),
    ]
