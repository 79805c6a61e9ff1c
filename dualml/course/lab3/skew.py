"""Requirements on `label_skew`: every sample once, and shares drawn from Dir(α)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dualml.course.exercise import Answer, Arrays, Difference, ExerciseCall
from dualml.course.lab3 import share_sizes as z
from dualml.course.lab3 import shares as s
from dualml.course.lab3.lists import list_types, unpack_lists
from dualml.course.lab3.partitioning import Draw, PropertyRequirement, draw_two_seeds
from dualml.course.lab3.share_mistakes import find_skew_mistake

#: Number of seeds per α that are drawn to test statistical properties.
SEEDS_PER_ALPHA = 120


@dataclass
class LabelSkewRequirement(PropertyRequirement):
    """Requirement on the parts of a function of (labels, ranks, alpha, seed).

    Attributes:
        properties: properties that must hold.
    """

    properties: Sequence[s.Holds]  # type: ignore[assignment]

    def calls(self, draw: Draw) -> list[ExerciseCall]:
        """Make one call of `SEEDS_PER_ALPHA` seeds for each α, with 4 ranks and random labels of
        five classes."""
        # The labels are not 0, 1, 2, …, have several sizes, and are in random order.
        names = np.array([0, *np.sort(draw.choice(np.arange(5, 30), 4, replace=False))])
        labels = np.repeat(names, draw.integers(50, 80, size=5))
        seed = draw_two_seeds(draw)[0]
        asks = [[alpha, seed + k] for alpha in s.ALPHAS for k in range(SEEDS_PER_ALPHA)]
        options = {"hyper": {"ranks": 4}, "asks": asks}
        return [
            ExerciseCall(
                "label_parts", self.target, options, [{"labels": draw.permutation(labels)}]
            )
        ]

    def problem(
        self, call: ExerciseCall, answer: Answer
    ) -> tuple[Difference, tuple[str, ...]] | None:
        """Return the first violated property as a difference, and the mistake that explains it;
        None if all hold."""
        arrays = answer.arrays[0]
        parts = read_parts(call, arrays)
        for holds in (s.check_indices, *self.properties):
            seen = holds(parts)
            if seen is not None:
                difference = Difference(0, seen.what, None, seen.value, seen.expected)
                flags = self.flags if holds is not s.check_indices else ()
                return difference, find_skew_mistake(flags, parts)
        return None


def read_parts(call: ExerciseCall, arrays: Arrays) -> s.LabelParts:
    """Unpack the arrays of an answer to the parts of each call (α, seed) and of its repetition."""
    found, ends = unpack_lists(arrays), np.cumsum(arrays["counts"])
    grouped = [found[a:b] for a, b in zip([0, *ends[:-1]], ends, strict=True)]
    asks = [(float(a), int(s)) for a, s in call.options["asks"]]
    return s.LabelParts(
        call.arrays[0]["labels"],
        call.options["hyper"]["ranks"],
        asks,
        grouped[: len(asks)],
        grouped[len(asks) :],
        *list_types(arrays),
        bool(arrays["touched"]),
        int(arrays["changed"]),
    )


def skew_requirements() -> list[LabelSkewRequirement]:
    """Return the requirements on `label_skew`."""
    target, unsteady = "label_skew", "draw_not_repeatable"
    return [
        LabelSkewRequirement(
            "skew.once",
            target,
            [s.check_coverage],
            [unsteady, "skew_label_numbers", "skew_twice", "skew_lost"],
        ),
        LabelSkewRequirement(
            "skew.repeatable",
            target,
            [s.check_repeatable, s.check_global_rng, s.check_labels_unchanged],
            [unsteady, "draw_global", "skew_labels_changed"],
        ),
        LabelSkewRequirement(
            "skew.random",
            target,
            [s.check_seeds_differ, s.check_shuffled, s.check_samples_vary],
            ["draw_seed_ignored", "skew_in_order", "skew_samples_fixed"],
        ),
        LabelSkewRequirement(
            "skew.shares",
            target,
            [
                z.check_label_shares,
                z.check_shares_vary,
                z.check_concentration,
                z.check_labels_independent,
            ],
            [
                "draw_seed_ignored",
                "skew_shares_fixed",
                "skew_same_shares",
                "skew_label_whole",
                "skew_even",
                "skew_wrong_axis",
                "skew_ranks_differ",
                "skew_alpha_ignored",
                "skew_alpha_inverted",
                "skew_alpha_divided",
                "skew_alpha_scaled",
                "skew_not_dirichlet",
            ],
        ),
    ]
