"""The cuts of a model, along its layers and inside them, and the rank of each part."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dualml.algorithms.model import model
from dualml.algorithms.model.layers import Branch, Merge, Tanh
from dualml.algorithms.model.spec import ModelSpec
from dualml.common.errors import UserError
from dualml.parallel.split import stage_cuts
from dualml.parallel.split.plan import SplitPlan, split_plan
from dualml.parallel.split.styles import choose_styles
from dualml.parallel.split.tensor_parallel import ParallelOp

# --- where to cut -------------------------------------------------------------------------------


@st.composite
def weighted(draw: st.DrawFn) -> tuple[ModelSpec, dict[str, float]]:
    """Draw a model, partly inside residual connections, and a weight for every layer."""
    layers: list[Any] = [("first", Tanh())]
    for i in range(draw(st.integers(1, 6))):
        if draw(st.booleans()):
            layers.append((f"tanh{i}", Tanh()))
        else:
            layers += [(f"branch{i}", Branch()), (f"in{i}", Tanh()), (f"merge{i}", Merge())]
    weights = {name: float(draw(st.integers(0, 9))) for name, _ in layers}
    return ModelSpec("drawn", (4,), tuple(layers)), weights


def heaviest(spec: ModelSpec, cut: Any, weights: dict[str, float]) -> tuple[float, float]:
    sums = [sum(weights[n] for n in names) for names in stage_cuts.stage_layers(spec, cut)]
    return max(sums), sum(s * s for s in sums)


@given(weighted(), st.integers(1, 5))
@settings(deadline=None, max_examples=300)
def test_no_cut_is_more_even(drawn: tuple[ModelSpec, dict[str, float]], stages: int) -> None:
    spec, weights = drawn
    places = stage_cuts.legal_cuts(spec)
    if stages - 1 > len(places):
        with pytest.raises(UserError, match=f"use at most {len(places) + 1} stages"):
            stage_cuts.balance_stages(spec, stages, weights)
        return
    cut = stage_cuts.balance_stages(spec, stages, weights)
    stage_cuts.check_cuts(spec, cut)
    every = itertools.combinations(places, stages - 1)
    assert heaviest(spec, cut, weights) == min(heaviest(spec, c, weights) for c in every)
    parts = stage_cuts.stage_layers(spec, cut)
    assert [name for names in parts for name in names] == [name for name, _ in spec.layers]
    assert all(parts)


def test_of_equal_cuts_the_most_even_one() -> None:
    """The heaviest stage is the last one, and those before it are balanced."""
    values = [3.0, 6.0, 2.0, 2.0, 0.0, 6.0, 8.0, 9.0]
    names = [f"l{i}" for i in range(8)]
    spec = ModelSpec("m", (4,), tuple((name, Tanh()) for name in names))
    cut = stage_cuts.balance_stages(spec, 5, dict(zip(names, values, strict=True)))
    assert heaviest(spec, cut, dict(zip(names, values, strict=True))) == (9.0, 278.0)


def test_what_is_balanced() -> None:
    """LeNet: 156 and 2,416 parameters of convolutions, 48,120 and 1,210 of linear layers."""
    spec = model("lenet")
    weights = stage_cuts.layer_costs(spec, "parameters")
    assert {n: w for n, w in weights.items() if w} == {
        "conv1": 156,
        "conv2": 2416,
        "fc1": 48120,
        "fc2": 1210,
    }
    shapes = stage_cuts.layer_costs(spec, "activations")
    assert (shapes["conv1"], shapes["pool1"], shapes["fc2"]) == (6 * 28 * 28, 6 * 14 * 14, 10)
    times = {name: 0.0 for name, _ in spec.layers} | {"conv1": 1.0, "relu3": 1.0, "fc2": 2.0}
    assert split_plan(spec, 2, balance="time", times=times).cut == ("fc2",)
    assert split_plan(spec, 3, balance="parameters").cut == ("relu2", "relu3")
    # 4704 elements of conv1 and relu1 each, then 1176, twice 1600, twice 400, twice 120, 10.
    assert split_plan(spec, 2, balance="activations").cut == ("pool1",)
    with pytest.raises(UserError, match="needs the measured time of every layer"):
        split_plan(spec, 2, balance="time", times={"conv1": 1.0})


@pytest.mark.parametrize(
    ("name", "cut", "words"),
    [
        (
            "vit",
            ["ln1"],
            "'ln1' lies inside a residual connection; the nearest place to cut is 'branch1'",
        ),
        ("vit", ["merge1"], "inside a residual connection; the nearest place to cut is 'branch2'"),
        ("lenet", ["fc3"], "lenet has no layer 'fc3'; did you mean 'fc2'?"),
        ("lenet", ["conv1"], "'conv1' is the first layer; the first stage begins there"),
        ("lenet", ["fc1", "conv2"], "must follow the model's order, each once"),
        ("lenet", ["fc1", "fc1"], "must follow the model's order, each once"),
    ],
)
def test_cuts_that_cannot_be(name: str, cut: list[str], words: str) -> None:
    with pytest.raises(UserError, match=words):
        split_plan(model(name), len(cut) + 1, cut=cut)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"stages": 11}, "11 stages are too many for lenet: .* use at most 10 stages"),
        ({"stages": 3, "cut": ["fc1"]}, r"stages = 3 needs 2 cuts; received \['fc1'\]"),
        ({"place": [0, 2]}, r"one of 2 pipeline ranks and every rank a stage; received \[0, 2\]"),
        ({"place": [0, 0]}, r"every rank a stage; received \[0, 0\]"),
        ({"layers": {"fc1": "row"}}, "that needs tensor >= 2"),
        ({"stages": 4, "schedule": "interleaved", "micro_batches": 3}, "received 3: use 2 or 4"),
        ({"trainers": 2}, "trainers = 2 with one server are 3 ranks, .* received world_size = 2"),
        ({"tensor": 2, "layers": {"fc2": "row"}}, "fc2: a row layer takes the output of a column"),
        ({"tensor": 2, "layers": {"fc2": "rows"}}, "'rows' is none of column, row, whole"),
        (
            {"tensor": 2, "layers": {"relu1": "row"}},
            "a ReLU cannot be split inside; Linear, Conv2d",
        ),
        ({"tensor": 2, "layers": {"fc3": "row"}}, "lenet has no layer 'fc3'; did you mean 'fc2'?"),
        ({"tensor": 2, "layers": {"fc2": "whole"}}, "tensor = 2: no layer of lenet is split"),
    ],
)
def test_splits_that_cannot_be(options: dict[str, Any], words: str) -> None:
    with pytest.raises(UserError, match=words):
        split_plan(model("lenet"), 2, **options)


def test_trainers_share_the_micro_batches() -> None:
    with pytest.raises(UserError, match="micro_batches = 3 cannot be shared by 2 trainers"):
        split_plan(model("lenet"), 3, trainers=2, micro_batches=3)


# --- inside layers ------------------------------------------------------------------------------


def pairs(plan: SplitPlan) -> list[str]:
    return [i.kind for v in plan.rank_stages(0)[0] for i in v.items if isinstance(i, ParallelOp)]


@pytest.mark.parametrize(
    ("name", "styles", "kinds"),
    [
        # The samples need no gradient: nothing is copied before the first layer of the model.
        (
            "lenet",
            {"conv1": "column", "conv2": "row", "fc1": "column", "fc2": "row"},
            ["sum", "copy", "sum"],
        ),
        ("mlp", {"fc1": "column", "fc2": "row"}, ["sum"]),
        (
            "deep_mlp",
            {f"fc{i}": "column" if i % 2 else "row" for i in range(1, 7)},
            ["sum", *["copy", "sum"] * 2],
        ),
        (
            "vit",
            {"qkv": "column", "proj": "row", "up": "column", "down": "row"},
            ["copy", "sum"] * 2,
        ),
        ("softmax", {"fc": "column"}, ["gather"]),
    ],
)
def test_pairs_are_found_and_meet_once_each_way(
    name: str, styles: dict[str, str], kinds: list[str]
) -> None:
    plan = split_plan(model(name), 2, tensor=2)
    assert {n: s for n, s in plan.styles.items() if s != "whole"} == styles
    assert pairs(plan) == kinds


def test_pairs_stay_inside_a_stage() -> None:
    plan = split_plan(model("lenet"), 4, tensor=2, cut=["conv2"])
    found = {n: s for n, s in plan.styles.items() if s != "whole"}
    assert found == {"conv1": "column", "conv2": "column", "fc1": "row"}
    assert pairs(plan) == ["gather"]


@pytest.mark.parametrize(
    ("name", "parts", "layers", "words"),
    [
        (
            "lenet",
            4,
            {},
            "conv1 has 6 output channels, which 4 ranks cannot share equally; use "
            "tensor = 2, 3, 6, or",
        ),
        ("lenet", 5, {"conv1": "column", "conv2": "row"}, "conv1 has 6 output channels, which 5"),
        ("lenet", 7, {"fc1": "column"}, "fc1 has 120 outputs, which 7 ranks"),
        ("vit", 3, {}, "attention has 4 heads, which 3 ranks"),
        ("vit", 3, {"qkv": "column"}, "attention has 4 heads, which 3 ranks cannot share equally"),
        ("vit", 8, {}, "attention has 4 heads, which 8 ranks cannot share equally"),
        ("rnn_lm", 3, {"embedding": "row"}, "embedding has 2000 words, which 3 ranks"),
        ("rnn_lm", 3, {"embedding": "column"}, "embedding has 64 features, which 3 ranks"),
    ],
)
def test_what_does_not_divide_is_told_with_its_numbers(
    name: str, parts: int, layers: dict[str, str], words: str
) -> None:
    with pytest.raises(UserError, match=words):
        split_plan(model(name), parts, tensor=parts, layers=layers)


def test_styles_as_given_are_all_there_are() -> None:
    spec = model("mlp")
    styles = choose_styles(spec, 2, {"fc2": "column"}, [list(spec.shapes())])
    assert {n for n, s in styles.items() if s != "whole"} == {"fc2"}
