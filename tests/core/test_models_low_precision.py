"""Traces of models in low precision are judged by the unit in the last place of their type."""

from __future__ import annotations

import numpy as np

from dualml.parity.envelope import perturb
from dualml.parity.models.gap import TensorDistance
from dualml.parity.models.trace import Trace, rounding_unit


def test_low_precision_has_its_own_unit() -> None:
    low = Trace("torch", {"dtype": "bfloat16"}, [], {})
    assert rounding_unit(Trace("torch", {"dtype": "float32"}, [], {})) == 2**-23
    assert rounding_unit(Trace("torch", {}, [], {}), low) == 2**-7
    weights = {"w": np.array([1.0, -3.0], np.float32)}
    moved = perturb(weights, 0, 1, 1, "bf16")["w"]
    assert np.abs(moved - weights["w"]).tolist() == [2**-7, 2**-6]
    wide = (1, "gradient", "w", 1.0, 0.1)
    assert TensorDistance(*wide).is_unstable
    assert not TensorDistance(*wide, floor=2**-7).is_unstable
