"""Patterns: one direction in all tensors of a kind, although each lies inside of the margin."""

from __future__ import annotations

import numpy as np

from dualml.parity.models.comparison import ModelComparison
from dualml.parity.models.judge import JudgingSettings, judge_traces
from dualml.parity.models.partners import Tensor
from dualml.parity.models.pattern import PATTERN_LIMIT, common_ratio, relative_scale
from dualml.parity.models.trace import OUTPUT, Trace, array_key

WIDTH = 1e-6
SIDES = ("torch", "mindspore")


def trace(moved: float = 0.0, way: str = "scale", n: int = 6) -> Trace:
    """Return a trace whose norms differ from the original by ``moved`` times the rounding."""
    rng = np.random.default_rng(0)
    names = [f"block{i}.norm" for i in range(n)]
    one = Trace("torch", {}, [Tensor("w", (2,), True)], dict.fromkeys(names, "RMSNorm"), steps=1)
    one.arrays[array_key("parameters", 0, "w")] = np.ones(2, np.float32)
    one.inputs, one.order, one.envelope, one.draws = [["x"]], [[*names, OUTPUT]], {}, 3
    for i, name in enumerate([*names, OUTPUT]):
        x = rng.standard_normal((8, 8)) + 0.5
        noise = np.random.default_rng([i, 1]).standard_normal((8, 8))
        noise *= np.linalg.norm(x) / np.linalg.norm(noise)
        step = {"scale": x, "noise": noise, "both ways": x * (-1) ** i}[way]
        y = x if name == OUTPUT else x + moved * WIDTH * step
        one.arrays[array_key("forward", 1, name)] = y
        one.envelope[array_key("forward", 1, name)] = WIDTH
    return one


def judged(other: Trace) -> ModelComparison:
    return judge_traces(trace(n=len(other.modules)), other, JudgingSettings(sides=SIDES))


def test_all_norms_in_one_direction_are_a_difference() -> None:
    found = judged(trace(8.0))
    assert (found.verdict, found.reason) == ("different", "pattern")
    assert found.worst < 10
    assert found.first is not None
    assert (found.first.tensor, found.first.type) == ("block0.norm", "RMSNorm")
    assert found.notes[0].values == {
        "n": 6,
        "kind": "RMSNorm",
        "ratio": "8",
        "limit": f"{PATTERN_LIMIT:g}",
    }
    assert "the pattern decides: the outputs of 6 modules of type RMSNorm" in found.paragraph()
    assert "6 个 RMSNorm 模块" in found.paragraph("zh")
    assert found.reach[0] == 0
    assert judged(trace(-8.0)).reason == "pattern"


def test_noise_and_scales_of_both_signs_are_rounding() -> None:
    assert judged(trace(8.0, "noise")).verdict == "equal"
    assert judged(trace(8.0, "both ways")).verdict == "equal"


def test_few_tensors_and_small_scales_are_no_pattern() -> None:
    assert judged(trace(8.0, n=2)).verdict == "equal"
    assert judged(trace(0.9 * PATTERN_LIMIT)).verdict == "equal"
    assert judged(trace(1.1 * PATTERN_LIMIT)).verdict == "different"


def test_the_kind_that_was_computed_first_is_named() -> None:
    own, other = trace(), trace(8.0)
    for one in (own, other):
        one.modules = {n: "Block" if i % 2 else "RMSNorm" for i, n in enumerate(one.modules)}
    found = judge_traces(own, other, JudgingSettings(sides=SIDES))
    assert found.first is not None
    assert (found.first.type, found.notes[0].values["n"]) == ("RMSNorm", 3)


def test_a_tolerance_that_nobody_measured_judges_no_pattern() -> None:
    other, own = trace(0.8), trace()
    own.envelope = other.envelope = None
    found = judge_traces(own, other, JudgingSettings(sides=SIDES))
    assert (found.verdict, found.tolerance) == ("equal", "bound")
    assert PATTERN_LIMIT < found.worst < 10


def test_scale_and_common_ratio() -> None:
    x = np.linspace(1, 2, 64)
    assert abs(relative_scale(x, 1.01 * x) - 0.01) < 1e-12
    assert relative_scale(0 * x, x) == 0.0
    assert relative_scale(x, x * np.nan) == 0.0
    assert common_ratio([1.0, 2.0, 3.0]) == 2.0
    assert common_ratio([-1.0, -2.0, -3.0]) == -2.0
    assert common_ratio([1.0, -2.0, 3.0]) == 0.0
    assert common_ratio([5.0, 5.0]) == 0.0
