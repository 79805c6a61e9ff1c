"""Requirements on `label_skew`: every sample once, and shares drawn from Dir(α)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dualml.course.exercise import Answer, Arrays, Call, Difference
from dualml.course.lab3 import shares as s
from dualml.course.lab3.dealt import Draw, Open, two_seeds
from dualml.course.lab3.lists import kinds, unpacked

#: Number of seeds per α that are drawn to test statistical properties.
MANY = 120


@dataclass
class Skewed(Open):
    """Requirement on the parts of a function of (labels, ranks, alpha, seed).

    Attributes:
        properties: properties that must hold.
    """

    holds: Sequence[s.Holds]  # type: ignore[assignment]

    def calls(self, draw: Draw) -> list[Call]:
        # The labels are not 0, 1, 2, …, have several sizes, and are in random order.
        names = np.array([0, *np.sort(draw.choice(np.arange(5, 30), 4, replace=False))])
        labels = np.repeat(names, draw.integers(50, 80, size=5))
        seed = two_seeds(draw)[0]
        asks = [[alpha, seed + k] for alpha in s.ALPHAS for k in range(MANY)]
        options = {"hyper": {"ranks": 4}, "asks": asks}
        return [Call("label_parts", self.target, options, [{"labels": draw.permutation(labels)}])]

    def problem(self, call: Call, answer: Answer) -> tuple[Difference, tuple[str, ...]] | None:
        arrays = answer.arrays[0]
        parts = read(call, arrays)
        for holds in (s.usable, *self.holds):
            seen = holds(parts)
            if seen is not None:
                difference = Difference(0, seen.what, None, seen.value, seen.expected)
                found = [f for f in self.flags if holds is not s.usable and s.DETECTORS[f](parts)]
                return difference, tuple(found[:1])
        return None


def read(call: Call, arrays: Arrays) -> s.Parts:
    """Read the parts of an answer."""
    found, ends = unpacked(arrays), np.cumsum(arrays["counts"])
    grouped = [found[a:b] for a, b in zip([0, *ends[:-1]], ends, strict=True)]
    asks = [(float(a), int(s)) for a, s in call.options["asks"]]
    return s.Parts(call.arrays[0]["labels"], call.options["hyper"]["ranks"], asks,
                 grouped[: len(asks)], grouped[len(asks) :], *kinds(arrays),
                 bool(arrays["touched"]))  # fmt: skip


def of_skew() -> list[Skewed]:
    """Return the requirements on `label_skew`."""
    target, unsteady = "label_skew", "draw_not_repeatable"
    return [
        Skewed("skew.once", target, [s.every_once],
               [unsteady, "skew_label_numbers", "skew_twice", "skew_lost"]),
        Skewed("skew.repeatable", target, [s.repeatable, s.untouched], [unsteady, "draw_global"]),
        Skewed("skew.random", target, [s.seeds_differ, s.mixed],
               ["draw_seed_ignored", "skew_in_order"]),
        Skewed("skew.shares", target, [s.drawn_for_each_label, s.concentrated],
               ["draw_seed_ignored", "skew_same_shares", "skew_label_whole", "skew_even",
                "skew_alpha_ignored", "skew_alpha_inverted", "skew_alpha_divided"]),
    ]  # fmt: skip
