"""Settings of optimizers, and the state that they begin with, are compared in two traces."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rank_traces import LOCAL, WEIGHTS, make_trace, mean_of

from dualml.common.words import LANGUAGES
from dualml.parity.models.comparison import ModelComparison
from dualml.parity.models.judge import JudgingSettings, judge_traces
from dualml.parity.models.optimizer_facts import (
    OptimizerStart,
    ParameterGroup,
    join_groups,
    plain_settings,
)
from dualml.parity.models.trace import Trace, array_key, read_trace
from dualml.parity.ranks.explaining import explain_comparison

MEAN = mean_of(LOCAL)


def train(decays: tuple[float, float] = (0.1, 0.0), **settings: float) -> Trace:
    """Return a trace of one step in which the weight and the bias have decays of their own."""
    made = make_trace(MEAN)
    arrays: Any = made.arrays
    for (name, w), decay in zip(WEIGHTS.items(), decays, strict=True):
        arrays[array_key("update", 1, name)] = arrays[array_key("update", 1, name)] - decay * w
        arrays[array_key("state", 1, f"sum/{name}")] = MEAN[name] ** 2
    made.groups = join_groups(
        (name, {"weight_decay": decay, "eps": 1e-8, **settings})
        for name, decay in zip(WEIGHTS, decays, strict=True)
    )
    made.start = OptimizerStart()
    return made


def compare(one: Trace, other: Trace) -> ModelComparison:
    judged = judge_traces(one, other, JudgingSettings(sides=("one", "other")))
    found = explain_comparison(judged, (one, other), ([], []))
    for lang in LANGUAGES:
        assert "{" not in found.paragraph(lang)
    return found


def test_exchanged_decays_are_named_with_groups_and_values() -> None:
    found = compare(train(), train((0.0, 0.1)))
    assert [note.key for note in found.notes] == ["ranks_exchanged_settings", "ranks_untested"]
    assert "weight_decay 0.1 / 0 (fc.weight), 0 / 0.1 (fc.bias)" in found.paragraph("en")


def test_another_setting_of_one_group() -> None:
    found = compare(train(), train((0.2, 0.0)))
    assert found.notes[0].key == "ranks_other_settings"
    assert "weight_decay 0.1 / 0.2 (fc.weight)" in found.paragraph("en")


def test_settings_that_explain_nothing_are_not_said() -> None:
    assert compare(train(), train(eps=1e-6)).equal
    one, other = train(), train((0.1, 0.2))
    arrays: Any = other.arrays
    arrays[array_key("update", 1, "fc.bias")] = one.arrays[array_key("update", 1, "fc.bias")]
    arrays[array_key("update", 1, "fc.weight")] = 2 * arrays[array_key("update", 1, "fc.weight")]
    found = compare(one, other)
    assert [note.key for note in found.notes] == ["only_updates"]
    assert "only 1 of the 2 updates differ (fc.weight)" in found.paragraph("en")


def test_optimizers_that_begin_in_other_states_are_different() -> None:
    one, other = train(), train()
    assert compare(one, other).equal
    one.start = OptimizerStart(updates=4, slots={"sum": None})
    found = compare(one, other)
    assert (found.verdict, found.reason) == ("different", "starts_apart")
    assert "that of one has made 4 updates (state that is not zero: sum)" in found.paragraph("en")
    one.start = OptimizerStart(slots={"sum": 0.1})
    assert "sum = 0.1" in compare(other, one).paragraph("en")


def test_a_state_of_one_framework_alone_is_no_difference() -> None:
    one, other = train(), train()
    one.start = OptimizerStart(updates=4, slots={"sum": None, "moment": None})
    other.start = OptimizerStart(slots={"sum": None})
    assert compare(one, other).equal
    other.start = None  # an older trace
    assert compare(one, other).equal


def test_settings_are_kept_in_the_file(tmp_path: Path) -> None:
    made = train()
    made.start = OptimizerStart(updates=2, slots={"sum": 0.1, "exp_avg": None})
    made.write(tmp_path)
    found = read_trace(tmp_path)
    assert (found.groups, found.start) == (made.groups, made.start)


def test_settings_have_one_name_in_all_frameworks() -> None:
    group = {"params": [1], "betas": (0.9, 0.99), "use_nesterov": True, "fused": None, "lr": 1}
    expected = {"beta1": 0.9, "beta2": 0.99, "nesterov": 1.0, "lr": 1.0}
    assert plain_settings(group) == expected
    assert join_groups([("a", {"lr": 1.0}), ("b", {"lr": 2.0}), ("c", {"lr": 1.0})]) == [
        ParameterGroup(names=["a", "c"], settings={"lr": 1.0}),
        ParameterGroup(names=["b"], settings={"lr": 2.0}),
    ]
