"""Requirements on the functions of Lab 2, on one to four ranks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from dualml.course.computed import Draw, draw_array
from dualml.course.exercise import Requirement
from dualml.course.lab2 import rules
from dualml.course.lab2.measuring import LATE_S, TimingRequirement
from dualml.course.lab2.reductions import (
    RANK_MISMATCH,
    ROOT_ERRORS,
    ChosenWayRequirement,
    CollectiveRequirement,
    DrawInputs,
    UnchangedInputRequirement,
    keep_arguments,
)
from dualml.course.lab2.ring import ring_all_reduce
from dualml.course.lab2.ring_requirement import RING_ERRORS, RingRequirement
from dualml.course.mistakes import mistake_groups

SHAPES = ((3, 2), (4,), (2, 3), ())
SUMS, MEANS, RING, MESSAGES = mistake_groups("lab2", "sums", "means", "ring", "messages")
TRAFFIC = (*MESSAGES, *RING)
#: Number of elements by which a few chunks differ.
ELEMENTS = 4.0
#: Value of ``how`` → collective that carries the tensors in this way.
COLLECTIVE_OF_HOW = {"all_reduce": "all_reduce", "gather_broadcast": "gather"}


def draw_uneven(draw: Draw, ranks: int) -> list[dict[str, Any]]:
    """Draw for each rank gradients ``t/0``, ``t/1``, … of the shapes `SHAPES`, and ``samples``, a
    number of samples that no other rank has."""
    counts = draw.choice(np.arange(2, 12), ranks, replace=False)
    return [
        {
            **{f"t/{i}": draw_array(draw, *s) for i, s in enumerate(SHAPES)},
            "samples": np.asarray(counts[r], np.int32),
        }
        for r in range(ranks)
    ]


def draw_gradients(draw: Draw, ranks: int) -> list[dict[str, Any]]:
    """Draw for each rank gradients ``t/0``, ``t/1``, … of the shapes `SHAPES`."""
    return [{f"t/{i}": draw_array(draw, *s) for i, s in enumerate(SHAPES)} for _ in range(ranks)]


def draw_vector(draw: Draw, ranks: int) -> list[dict[str, Any]]:
    """Draw for each rank a matrix ``t`` of shape (rows, 1), whose elements as many chunks as ranks
    cannot share evenly."""
    rows = int(draw.integers(2, 4)) * ranks + 1
    return [{"t": draw_array(draw, rows, 1)} for _ in range(ranks)]


def draw_short_vector(draw: Draw, ranks: int) -> list[dict[str, Any]]:
    """Draw for each rank a vector ``t`` of fewer elements than ranks, so that some chunks are
    empty."""
    rows = int(draw.integers(1, ranks))
    return [{"t": draw_array(draw, rows)} for _ in range(ranks)]


def draw_long_vector(draw: Draw, ranks: int) -> list[dict[str, Any]]:
    """Draw for each rank a vector ``t`` of so many elements that one chunk more or less does not
    matter; two are left over, so that neither may one chunk take them nor the last one lack the
    rest."""
    rows = int(draw.integers(20, 40)) * ranks + 2
    return [{"t": draw_array(draw, rows)} for _ in range(ranks)]


def errors_of(collectives: Sequence[str]) -> Sequence[tuple[str, str]]:
    """Return the patterns of errors of a function that may use these collectives."""
    return (*RANK_MISMATCH, *(ROOT_ERRORS if "gather" in collectives else ()))


def mean_requirements(target: str, collectives: Sequence[str], name: str) -> list[Requirement]:
    """Return the requirements on one way to average gradients: on several ranks, on one, and on
    its arguments; ``collectives`` are those that it may use."""
    options = {"collectives": list(collectives)}
    rule, draw, errors = rules.average_gradients, draw_uneven, errors_of(collectives)
    return [
        *(
            CollectiveRequirement(
                f"{name}.{what}", target, "aggregate", rule, draw, n, SUMS, options, errors=errors
            )
            for what, n in (("uneven", (2, 3, 4)), ("alone", (1,)))
        ),
        unchanged_requirement(f"{name}.kept", target, draw, options),
    ]


def chosen_requirement(name: str, how: str) -> Requirement:
    """Return the requirement on the gradients that are averaged in the way ``how``."""
    collectives = ["all_reduce", "gather", "broadcast"]
    (other,) = COLLECTIVE_OF_HOW.keys() - {how}
    return ChosenWayRequirement(
        name,
        "sum_gradients",
        "aggregate",
        rules.average_gradients,
        draw_uneven,
        (3,),
        SUMS,
        {"collectives": collectives, "how": {"how": how}},
        errors=errors_of(collectives),
        way=COLLECTIVE_OF_HOW[how],
        other=COLLECTIVE_OF_HOW[other],
    )


def unchanged_requirement(
    name: str, target: str, draw: DrawInputs, options: dict[str, Any]
) -> Requirement:
    """Return the requirement that a function leaves its list and its tensors as they are."""
    fields = (name, target, "aggregate", keep_arguments, draw, (2,), (), options)
    errors = errors_of(options["collectives"])
    return UnchangedInputRequirement(*fields, errors=errors, mistake="arguments_changed")


def ring_requirement(
    name: str,
    draw_inputs: DrawInputs,
    ranks: Sequence[int],
    flags: Sequence[str] = RING,
    result_keys: Sequence[str] = ("sum",),
    slack: float = 0.0,
) -> Requirement:
    """Return a requirement on the ring all-reduce, with these fields of `CollectiveRequirement`."""
    fields = (name, "ring_all_reduce", "ring", ring_all_reduce, draw_inputs, ranks, flags)
    errors = (*RANK_MISMATCH, *RING_ERRORS)
    return RingRequirement(*fields, result_keys=result_keys, slack=slack, errors=errors)


def requirements() -> list[Requirement]:
    """Return the requirements of Lab 2."""
    some = {"collectives": ["all_reduce", "gather", "broadcast"]}
    errors = (*RANK_MISMATCH, *RING_ERRORS)
    return [
        *mean_requirements("by_all_reduce", ["all_reduce"], "reduce"),
        *mean_requirements("by_gather_broadcast", ["gather", "broadcast"], "gather"),
        chosen_requirement("chosen.reduce.uneven", "all_reduce"),
        chosen_requirement("chosen.gather.uneven", "gather_broadcast"),
        CollectiveRequirement(
            "average.mean",
            "average_parameters",
            "aggregate",
            rules.average_parameters,
            draw_gradients,
            (1, 2, 4),
            MEANS,
            some,
            errors=errors_of(some["collectives"]),
        ),
        unchanged_requirement("average.kept", "average_parameters", draw_gradients, some),
        ring_requirement("ring.sum", draw_vector, (2, 3, 4)),
        ring_requirement("ring.short", draw_short_vector, (4,)),
        ring_requirement("ring.alone", draw_vector, (1,)),
        UnchangedInputRequirement(
            "ring.kept",
            "ring_all_reduce",
            "ring",
            keep_arguments,
            draw_vector,
            (3,),
            errors=errors,
        ),
        ring_requirement(
            "ring.traffic", draw_long_vector, (3, 4), TRAFFIC, ("messages", "elements"), ELEMENTS
        ),
        TimingRequirement("measure.typical", late=0.0),
        TimingRequirement("measure.late", late=LATE_S),
    ]
