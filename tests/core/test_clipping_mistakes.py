"""Recognise how gradients are clipped and unscaled between backward pass and update."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from rank_traces import LOCAL, make_trace
from test_pass_mistakes import compare, first_cause

from dualml.parity.models.trace import Trace

RAW = LOCAL[0]
SCALE = 1024.0


def norm(gradients: Any) -> float:
    return float(np.sqrt(sum((g.astype(np.float64) ** 2).sum() for g in gradients.values())))


def times(factor: float, gradients: Any = RAW) -> dict[str, Any]:
    return {
        name: (factor * g.astype(np.float64)).astype(np.float32) for name, g in gradients.items()
    }


def clip(gradients: Any, limit: float, term: float = 1e-6) -> dict[str, Any]:
    return times(min(1.0, limit / (norm(gradients) + term)), gradients)


def clip_each(gradients: Any, limit: float) -> dict[str, Any]:
    return {k: v for name, g in gradients.items() for k, v in clip({name: g}, limit).items()}


def train(gradients: Any, raw: Any = RAW) -> Trace:
    return make_trace(gradients, local=[raw])


SCALED, SMALL = times(SCALE), times(1e-3)
CASES: dict[str, tuple[Trace, Trace, str]] = {
    "by group": (train(clip(RAW, 0.5)), train(clip_each(RAW, 0.5)), "clipped_by_group"),
    "by group, the other not": (make_trace(RAW), train(clip_each(RAW, 0.5)), "clipped_by_group"),
    "while scaled": (
        train(clip(RAW, 0.5), SCALED),
        train(times(1 / SCALE, clip(SCALED, 0.5)), SCALED),
        "clipped_while_scaled",
    ),
    "while scaled, the other below": (
        train(clip(RAW, 50.0), SCALED),
        train(times(1 / SCALE, clip(SCALED, 50.0)), SCALED),
        "clipped_while_scaled",
    ),
    "twice": (train(RAW, SCALED), train(times(1 / SCALE), SCALED), "unscaled_twice"),
    "twice, the other never": (make_trace(RAW), train(times(1 / SCALE), SCALED), "unscaled_twice"),
    "another scale": (train(RAW, SCALED), train(times(0.5), SCALED), "unscaled_otherwise"),
    "without a term": (
        train(clip(SMALL, 5e-4), SMALL),
        train(clip(SMALL, 5e-4, 0.0), SMALL),
        "clipped_with_other_term",
    ),
    "to another norm": (train(clip(RAW, 0.5)), train(clip(RAW, 1.0)), "clipped_to_other_norm"),
    "by value": (
        make_trace(RAW),
        train({name: np.clip(g, -0.5, 0.5) for name, g in RAW.items()}),
        "clipped_by_value",
    ),
    "upwards": (make_trace(SMALL), train(times(1.0 / norm(SMALL), SMALL), SMALL), "raised_to_norm"),
}


@pytest.mark.parametrize("swapped", [False, True])
@pytest.mark.parametrize("name", CASES)
def test_a_mistake_is_named_first_on_the_side_that_has_it(name: str, swapped: bool) -> None:
    one, other, key = CASES[name]
    found = compare(other, one) if swapped else compare(one, other)
    first, values = first_cause(found)
    assert first == key, found.paragraph()
    if key not in ("clipped_with_other_term", "clipped_to_other_norm"):  # of equal sides
        assert values["suspect"] == ("one" if swapped else "other")


def test_gradients_that_are_treated_alike_have_no_such_cause() -> None:
    assert compare(train(clip(RAW, 0.5)), train(clip(RAW, 0.5))).equal
    strange = {name: np.flip(g).copy() for name, g in RAW.items()}
    assert compare(train(clip(RAW, 0.5)), train(strange)).notes == ()
