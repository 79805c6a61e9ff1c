"""The numbers that a check lists for a wrong one of Lab 4 suffice to compute it by hand."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pytest

from dualml.common.seeds import make_generator
from dualml.course.exercise import Difference, Requirement
from dualml.course.labs import find_exercise

#: Requirements that compare counts with the rule, which are not computed from numbers.
COUNTS = {"column.sums", "row.sums"}


def calculated(requirement: Requirement) -> Iterator[tuple[Difference, Mapping[str, Any]]]:
    """Yield the last element of every array that a call returns, and the numbers listed for it."""
    for call in requirement.calls(make_generator(4, "exercise", requirement.name)):
        for rank, own in enumerate(requirement.expected(call)):
            for key, array in own.items():
                index = tuple(n - 1 for n in array.shape)
                place = Difference(rank, key, index, 0.0, float(array[index]))
                yield place, requirement.inputs(call, place)


SPLIT = {
    r.name: r for name in ("split_torch", "rpc_torch") for r in find_exercise(name)[1].requirements
}


@pytest.mark.parametrize("name", ["stages.whole", "stages.micro", "rpc.updates"])
def test_a_stage_is_calculated_by_hand(name: str) -> None:
    for place, listed in calculated(SPLIT[name]):
        values = [v for k, v in listed.items() if k.startswith(("L_", "∂"))]
        assert len(values) == (4 if name == "stages.micro" else 1)
        right = np.mean(values)
        if not place.key.endswith("loss"):
            (before,) = (v for k, v in listed.items() if k.startswith("θ"))
            right = before - listed["η"] * right
        assert right == pytest.approx(place.expected)


LAYERS = [name for name in SPLIT if name[:3] in ("col", "row") and name not in COUNTS]


@pytest.mark.parametrize("name", LAYERS)
def test_a_layer_is_calculated_by_hand(name: str) -> None:
    for place, listed in calculated(SPLIT[name]):
        bias = sum(v for v in listed.values() if isinstance(v, float))
        factors = [np.array(v) for v in listed.values() if isinstance(v, tuple)]
        right = factors[0] @ factors[1] if len(factors) == 2 else factors[0].sum()
        assert right + bias == pytest.approx(place.expected, abs=1e-5)
