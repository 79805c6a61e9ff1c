"""A low-precision method compared with our own training in that precision, by that arm's
envelope."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dualml.experiment.config_diff import ConfigDiff
from dualml.experiment.exactness import single_process_arm
from dualml.experiment.methods import METHODS
from dualml.experiment.schema import Experiment
from dualml.experiment.store.envelope import Envelope
from dualml.experiment.store.trajectory import Trajectory
from dualml.experiment.store.trial_comparison import RunVerdicts
from dualml.interface.cli.output import print_verdicts
from dualml.parity.diffs.load import catalogue
from dualml.parity.low_precision_methods import compare_low_precision_methods

ONE = {"optimizer": {"name": "adam", "lr": 0.001}, "batch_size": 64, "epochs": 1.0}
ARMS: dict[str, dict[str, Any]] = {
    "single": ONE,
    "other-rate": {**ONE, "precision": "bf16", "optimizer": {"name": "adam", "lr": 0.01}},
    "bf16": {**ONE, "precision": "bf16"},
    "fp16": {**ONE, "precision": "fp16"},
    "ranks": {**ONE, "precision": "bf16", "world_size": 2},
    "method": {**ONE, "method": "amp_bf16"},
    "exact": {**ONE, "method": "single"},
}
STEPS = 6
#: Relative size of roundings of a loss or a weight: in float32, in bfloat16.
WIDTHS = {"single": 1e-7, "bf16": 1e-3}


def experiment(*arms: str) -> Experiment:
    table = {"name": "x", "title": {"en": "x"}, "model": "softmax", "data": {"name": "digits"}}
    return Experiment.model_validate({**table, "arms": {arm: ARMS[arm] for arm in arms or ARMS}})


def trajectory(off: float, width: float | None = None, forward: float = 0.0) -> Trajectory:
    """Return losses and weights with the relative error ``off``; with ``width`` also their
    envelope."""
    keys = [f"{phase}/{step:08d}/fc.weight" for step in (1, STEPS) for phase in ("update", "state")]
    tensors = {key: np.full(4, 1.0 + off) for key in keys}
    tensors |= {f"forward/{step:08d}/fc": np.full(4, 1.0 + forward) for step in (1, STEPS)}
    drawn = None
    if width is not None:
        drawn = Envelope(np.full(STEPS, width), dict.fromkeys(tensors, width), 3)
    data = {1: "a", STEPS: "b"}
    weights = {"fc.weight": np.ones(4)}
    return Trajectory(
        "torch", np.full(STEPS, 2.0 + 2 * off), tensors, data, drawn, 1.0, 0.5, weights
    )


def read(off: float, forward: float = 0.0) -> dict[tuple[str, int], dict[str, Trajectory]]:
    """Return the verdict with the float32 arm at 0, ours in bfloat16 at 1e-3, and the method at a
    given distance."""
    return {
        ("single", 0): {"torch": trajectory(0.0, WIDTHS["single"])},
        ("bf16", 0): {"torch": trajectory(1e-3, WIDTHS["bf16"])},
        ("exact", 0): {"torch": trajectory(0.0)},
        ("method", 0): {"torch": trajectory(off, forward=forward)},
    }


@pytest.mark.parametrize(
    ("off", "verdict", "reason"),
    [
        (1e-3, "equal", "inside_envelope"),
        (9e-3, "equal", "inside_envelope"),  # 8 of the 10 envelopes that are allowed
        (-2e-3, "equal", "inside_envelope"),
        (2e-2, "different", "outside_envelope"),
        (0.0, "different", "float32"),  # inside the wide envelope, and inside float32's own
        (5e-7, "different", "float32"),
    ],
)
def test_inside_its_own_envelope_and_outside_of_float32_s(
    off: float, verdict: str, reason: str
) -> None:
    (judged,) = compare_low_precision_methods(experiment(), read(off))
    named = {key: getattr(judged, key) for key in ("arm", "seed", "backend", "against")}
    assert named == {"arm": "method", "seed": 0, "backend": "torch", "against": "bf16"}
    assert (judged.verdict, judged.reason) == (verdict, reason)
    assert bool(judged.first_divergence) == (reason == "outside_envelope")


def test_what_its_layers_give_out_in_float32_is_not_judged() -> None:
    (judged,) = compare_low_precision_methods(experiment(), read(1e-3, forward=0.5))
    assert judged.verdict == "equal"
    assert "forward" not in judged.phases


def test_without_an_arm_of_its_precision_there_is_nothing() -> None:
    there = read(1e-3)
    del there["bf16", 0]
    assert (
        compare_low_precision_methods(experiment("single", "fp16", "exact", "method"), there) == []
    )
    assert compare_low_precision_methods(experiment(), there) == []  # it failed


def test_without_float32_the_wide_envelope_alone_decides() -> None:
    there = read(0.0)
    del there["single", 0]
    (judged,) = compare_low_precision_methods(experiment(), there)
    assert judged.verdict == "equal"


def test_it_decides_no_exit_code() -> None:
    lowered = tuple(compare_low_precision_methods(experiment(), read(2e-2)))
    assert RunVerdicts(serial=(), lowered=lowered).verdict == "equal"


def test_the_terminal_names_who_leaves_the_envelope(capsys: pytest.CaptureFixture[str]) -> None:
    far, near = (compare_low_precision_methods(experiment(), read(off)) for off in (2e-2, 1e-3))
    print_verdicts(RunVerdicts(lowered=tuple(far)))
    assert "method – bf16, torch, 0: different update 1, loss" in capsys.readouterr().out
    print_verdicts(RunVerdicts(lowered=tuple(near)))
    assert "method" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("precision", "arm"), [("bf16", "bf16"), ("fp16", "fp16"), ("fp32", "single")]
)
def test_the_arm_that_does_the_same_in_one_process(precision: str, arm: str) -> None:
    assert single_process_arm("method", ConfigDiff(experiment().arms), precision) == arm


def test_every_method_in_a_lower_precision_says_where_it_casts_otherwise() -> None:
    every = [m for methods in METHODS.values() for m in methods.values()]
    run = [m for m in every if m.precision != "fp32" and not m.unsupported]
    assert run
    for method in run:
        assert set(method.casts) == {"en", "zh"}, method.name
        assert method.entries or method.package  # entries are of the two frameworks
        assert set(method.entries) <= set(catalogue()), method.name
    assert not any(m.casts or m.entries for m in every if m.precision == "fp32")
