"""A check lists, for every number that a rule computes, what it is computed from."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from dualml.common.seeds import make_generator
from dualml.course.computed import ComputedRequirement
from dualml.course.exercise import Difference, ExerciseCall, Requirement
from dualml.course.labs import LABS, load_lab

#: Requirements that compare counts with the rule, which are not computed from numbers.
COUNTS = {"column.sums", "row.sums", "ring.traffic", "zero.sent"}
#: Requirements that compare the argument after the call with what it was before.
KEPT = {"ring.kept", "zero.kept", "train.start", "gd.unchanged", "sgd.unchanged", "adam.unchanged"}


def places(requirement: Requirement, call: ExerciseCall) -> Iterator[Difference]:
    """Yield the last element of every array that a call returns."""
    for rank, own in enumerate(requirement.expected(call)):
        for key, array in own.items():
            if array.size:
                index = tuple(n - 1 for n in array.shape)
                yield Difference(rank, key, index, 0.0, float(array[index]))


def calculated(requirement: Requirement) -> Iterator[tuple[Difference, Mapping[str, Any], Any]]:
    """Yield each place in the results, the numbers listed for it, and the call."""
    for call in requirement.calls(make_generator(4, "exercise", requirement.name)):
        for place in places(requirement, call):
            yield place, requirement.inputs(call, place), call


EVERY = {
    r.name: r
    for lab in LABS
    for file in load_lab(lab).files
    for r in file.requirements
    if isinstance(r, ComputedRequirement) and r.name not in COUNTS | KEPT
}


@pytest.mark.parametrize("name", EVERY)
def test_every_computed_number_has_numbers_that_it_is_computed_from(name: str) -> None:
    listed = {place.key: inputs for place, inputs, _ in calculated(EVERY[name])}
    without = {key for key, inputs in listed.items() if not inputs}
    # State and parameters that no update changes are in other requirements' lists, or given, as are
    # samples after an update.
    without = {key for key in without if not re.fullmatch(r"\d+/[xy]", key)}
    assert without <= {"m", "v", "shift", "w1", "b1", "w2", "b2"}, without
