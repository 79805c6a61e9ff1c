"""Requirements on the functions of Lab 2, on one to four ranks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dualml.course.exercise import (
    RIGHT,
    Answer,
    Arrays,
    Call,
    Difference,
    Flags,
    Requirement,
)
from dualml.course.lab1.requirements import MARGIN, PLACES, finite_most
from dualml.course.lab2 import rules
from dualml.course.lab2.measuring import LATE_S, OTHER, Measured

SHAPES = ((3, 2), (4,), ())
SUMS = ("sum_unweighted", "sum_undivided", "sum_weighted_undivided", "sum_by_ranks",
        "sum_own_count", "sum_root_count", "sum_first_tensor", "sum_root_only", "sum_own_missing",
        "sum_root_missing", "sum_divided_twice", "sum_wrong_root", "sum_whole_share")  # fmt: skip
MEANS = ("average_sum", "average_root_only", "average_root", "average_first_tensor",
         "average_without_own")  # fmt: skip
RING = ("ring_overwritten", "ring_reduce_short", "ring_gather_short", "ring_remainder",
        "ring_gather_adds", "ring_mean", "ring_forward", "ring_forward#2",
        "ring_forward#3")  # fmt: skip
TRAFFIC = ("ring_everything", *RING)
#: Number of elements by which a few chunks differ.
ELEMENTS = 4.0
#: Patterns of errors if ranks make different requests or one makes none, and the mistakes that they
#: show.
APART = (
    ("ranks disagree", "crossed"),
    ("CommunicationError: .*(waited|missing|no answer|failed on rank|is gone)", "one_sided"),
    (r"ValueError: rank \d+ receives \d+ elements", "ring_index"),
    OTHER,
)
Draw = np.random.Generator


def drawn(draw: Draw, shape: tuple[int, ...]) -> Any:
    """Draw a float32 array with two decimals."""
    return np.asarray(draw.normal(size=shape).round(2), np.float32)


@dataclass
class Together(Requirement):
    """Requirement with one right answer on every rank, for several numbers of ranks.

    Attributes:
        kind: kind of the calls.
        rule: function of all ranks' arrays, mistakes and dtype that returns each rank's results.
        draw_inputs: function that draws the arrays of all ranks.
        options: options of the calls.
        result_keys: keys of the results that count; empty: all.
        slack: number of elements by which a right answer may differ, since any rank may have the
            longest chunk.
    """

    name: str
    target: str
    kind: str
    rule: Callable[[Sequence[Arrays], Flags, Any], list[dict[str, Any]]]
    draws: Callable[[Draw, int], list[dict[str, Any]]]
    ranks: Sequence[int]
    flags: Sequence[str] = ()
    options: Any = None
    looks: Sequence[str] = ()
    slack: float = 0.0
    errors: Sequence[tuple[str, str]] = APART
    points: float = 1.0

    def calls(self, draw: Draw) -> list[Call]:
        options = {"comm": True, "hyper": {}, **(self.options or {})}
        return [Call(self.kind, self.target, options, self.draws(draw, n)) for n in self.ranks]

    def expected(self, call: Call, flags: Flags = RIGHT) -> list[Arrays]:
        return [self.looked(a) for a in self.rule(call.arrays, flags, np.float64)]

    def looked(self, arrays: dict[str, Any]) -> Arrays:
        """Return the results that count."""
        return {k: a for k, a in arrays.items() if not self.looks or k in self.looks}

    def tolerance(self, call: Call, flags: Flags = RIGHT) -> list[Arrays]:
        exact = self.expected(call, flags)
        single = [self.looked(a) for a in self.rule(call.arrays, flags, np.float32)]
        off = [np.abs(s[k] - e[k]) for s, e in zip(single, exact, strict=True) for k in e]
        largest = max(finite_most(a) for e in exact for a in e.values())
        most = MARGIN * max(map(finite_most, off)) + PLACES * np.spacing(np.float32(largest))
        return [{k: np.asarray(self.slack if k == "elements" else most) for k in e} for e in exact]

    def inputs(self, call: Call, difference: Difference) -> dict[str, Any]:
        if difference.index is None:
            return {}
        shown: dict[str, Any] = {}
        name = "t" if difference.key == "sum" else f"t/{difference.key}"
        for rank, arrays in enumerate(call.arrays):
            if name in arrays:
                shown[f"g (rank {rank})"] = float(arrays[name][difference.index])
            if "samples" in arrays:
                shown[f"n (rank {rank})"] = int(arrays["samples"])
        return shown


@dataclass
class Kept(Together):
    """Requirement on inputs that must stay unchanged; only one mistake changes them."""

    def problem(self, call: Call, answer: Answer) -> tuple[Difference, tuple[str, ...]] | None:
        wrong = super().problem(call, answer)
        return None if wrong is None else (wrong[0], ("ring_in_place",))


def uneven(draw: Draw, ranks: int) -> list[dict[str, Any]]:
    """Draw gradients, and different numbers of samples for all ranks."""
    counts = draw.choice(np.arange(2, 12), ranks, replace=False)
    return [
        {**{f"t/{i}": drawn(draw, s) for i, s in enumerate(SHAPES)},
         "samples": np.asarray(counts[r], np.int32)}
        for r in range(ranks)
    ]  # fmt: skip


def plain(draw: Draw, ranks: int) -> list[dict[str, Any]]:
    """Draw gradients without numbers of samples."""
    return [{f"t/{i}": drawn(draw, s) for i, s in enumerate(SHAPES)} for _ in range(ranks)]


def vector(draw: Draw, ranks: int) -> list[dict[str, Any]]:
    """Draw a matrix whose elements n chunks cannot share evenly."""
    rows = int(draw.integers(2, 4)) * ranks + 1
    return [{"t": drawn(draw, (rows, 1))} for _ in range(ranks)]


def short(draw: Draw, ranks: int) -> list[dict[str, Any]]:
    """Draw fewer elements than ranks, so that some chunks are empty."""
    rows = int(draw.integers(1, ranks))
    return [{"t": drawn(draw, (rows,))} for _ in range(ranks)]


def long(draw: Draw, ranks: int) -> list[dict[str, Any]]:
    """Draw so many elements that one chunk more or less does not matter."""
    rows = int(draw.integers(20, 40)) * ranks + 1
    return [{"t": drawn(draw, (rows,))} for _ in range(ranks)]


def means(target: str, collectives: Sequence[str], name: str, how: str = "") -> list[Requirement]:
    """Return the requirements on one way to average gradients: on one rank, and on several
    ranks."""
    options: dict[str, Any] = {"collectives": list(collectives)}
    if how:
        options["how"] = {"how": how}
    many = (2, 3, 4) if not how else (3,)
    return [
        Together(f"{name}.uneven", target, "aggregate", rules.gradients, uneven, many, SUMS,
                 options),
        Together(f"{name}.alone", target, "aggregate", rules.gradients, uneven, (1,), SUMS,
                 options),
    ]  # fmt: skip


def requirements() -> list[Requirement]:
    """Return the requirements of Lab 2."""
    some = {"collectives": ["all_reduce", "gather", "broadcast"]}
    both = some["collectives"]
    return [
        *means("by_all_reduce", ["all_reduce"], "reduce"),
        *means("by_gather_broadcast", ["gather", "broadcast"], "gather"),
        means("sum_gradients", both, "chosen.reduce", "all_reduce")[0],
        means("sum_gradients", both, "chosen.gather", "gather_broadcast")[0],
        Together("average.mean", "average_parameters", "aggregate", rules.parameters, plain,
                 (1, 2, 4), MEANS, some),
        Together("ring.sum", "ring_all_reduce", "ring", rules.ring, vector, (2, 3, 4), RING,
                 looks=("sum",)),
        Together("ring.short", "ring_all_reduce", "ring", rules.ring, short, (4,), RING,
                 looks=("sum",)),
        Together("ring.alone", "ring_all_reduce", "ring", rules.ring, vector, (1,), RING,
                 looks=("sum",)),
        Kept("ring.kept", "ring_all_reduce", "ring", rules.ring, vector, (3,), looks=("before",)),
        Together("ring.traffic", "ring_all_reduce", "ring", rules.ring, long, (3, 4), TRAFFIC,
                 looks=("messages", "elements"), slack=ELEMENTS),
        Measured("measure.typical", late=0.0),
        Measured("measure.late", late=LATE_S),
    ]  # fmt: skip
