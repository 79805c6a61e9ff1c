"""The verdicts on two traces of users' models."""

from __future__ import annotations

import json
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from model_traces import scale_slightly, set_nan, spoiled, trace

from dualml.parity.models.divergence import belongs_to, lacks_operator, locate_error
from dualml.parity.models.gap import gap, largest_differences
from dualml.parity.models.judge import PHASES, judge_traces
from dualml.parity.models.operations import SourceLocation
from dualml.parity.models.trace import OUTPUT, Trace, array_key


def test_rounding_is_equal_across_names_and_layouts() -> None:
    found = judge_traces(trace(), trace(1e-7, other=True))
    assert (found.verdict, found.reason, found.first) == ("equal", "inside_envelope", None)
    assert found.worst < 1
    assert set(found.phases) == set(PHASES) - {"parameters"}
    assert found.describe()["mapping"][2]["change"] == "transpose"


@pytest.mark.parametrize(
    ("place", "expected"),
    [
        (("forward", 1, "norm"), ("forward", "norm", "LayerNorm", "norm")),
        (("forward", 2, "(output)"), ("forward", "(output)", "", "(output)")),
        (("loss", 1, "loss"), ("loss", "", "", "loss")),
        (("gradient", 1, "norm.gamma"), ("gradient", "norm", "LayerNorm", "norm.weight")),
        (("update", 1, "fc.weight"), ("update", "fc", "Linear", "fc.weight")),
        (("state", 1, "exp_avg/norm.beta"), ("state", "norm", "LayerNorm", "exp_avg/norm.bias")),
    ],
)
def test_the_first_divergence_is_named(
    place: tuple[str, int, str], expected: tuple[str, ...]
) -> None:
    b = spoiled(scale_slightly, *place)
    if place[2] == "norm":  # what differs inside alone is no difference, see below
        b.arrays[array_key("forward", 1, OUTPUT)] *= np.float32(1.001)
    found = judge_traces(trace(), b)
    assert found.verdict == "different"
    first = found.first
    assert first is not None
    assert (first.phase, first.layer, first.type, first.tensor) == expected
    assert first.step == place[1]
    assert first.distance == pytest.approx(1e-3, rel=0.05)
    assert first.elements
    one = first.elements[0]
    assert one["mindspore"] == pytest.approx(one["torch"] * 1.001, rel=1e-4)
    for lang in ("en", "zh"):
        assert first.tensor in found.paragraph(lang)
    json.dumps(found.describe())


def test_a_small_error_is_named_where_it_begins() -> None:
    b = spoiled(lambda x: x * (1 + 8e-6), "forward", 1, "norm")
    where = array_key("forward", 1, "fc")
    b.arrays[where] = b.arrays[where] * np.float32(1 + 1.5e-5)
    first = judge_traces(trace(), b).first
    assert first is not None
    assert first.layer == "norm"
    assert first.outside is not None
    assert first.outside["tensor"] == "fc"


@pytest.mark.parametrize("phase", [None, "loss", "gradient", "update"])
def test_an_inner_output_decides_only_where_results_differ(phase: str | None) -> None:
    b = spoiled(np.abs, "forward", 1, "norm")  # as with an activation inside of the layer
    names = {"loss": "loss", "gradient": "fc.bias", "update": "fc.bias"}
    if phase is not None:
        b.arrays[array_key(phase, 1, names[phase])] *= np.float32(1.001)
    found = judge_traces(trace(), b)
    expected = {None: None, "update": ("update", "fc")}.get(phase, ("forward", "norm"))
    first = found.first and (found.first.phase, found.first.layer)
    assert (found.verdict, first) == ("different" if phase else "equal", expected)
    inner = [note for note in found.notes if note.key == "inner"]
    assert [note.values["names"] for note in inner] == (
        ["norm"] if phase in (None, "update") else []
    )
    for lang in ("en", "zh") if inner else ():
        assert "norm" in found.paragraph(lang)
    assert phase or found.worst < 10


def test_an_inner_output_decides_without_gradients_and_where_it_may_be_diluted() -> None:
    a, b = trace(), spoiled(np.abs, "forward", 1, "norm")
    for side in (a, b):  # a small factor behind the module could hide it from the output
        for key in [key for key in side.arrays if key.startswith("gradient")]:
            del side.arrays[key]
    assert judge_traces(a, b).verdict == "different"
    small = spoiled(lambda x: x * (1 + 5e-5), "forward", 1, "norm")
    assert judge_traces(trace(), small).verdict == "different"


def test_an_error_of_types_leads_to_the_layer_that_ignores_its_type() -> None:
    a, b = trace(steps=1), trace(other=True, steps=1)
    for name in ("norm", "fc"):
        where = array_key("forward", 1, name)
        a.arrays[where] = a.arrays[where].astype(np.float16)
    b.built["norm"] = SourceLocation("/net.py", 3, "nn.Embedding(6, 2, dtype=ms.float16)")
    b.raised = "For 'MatMul', the type of 'x2' should be same as 'x1', but got 'x1' with Float32"
    found = judge_traces(a, b)
    assert (found.verdict, found.reason) == ("not comparable", "other_types")
    assert [note.key for note in found.notes] == ["raised", "types", "entry"]
    assert "embedding-type" in found.paragraph()
    assert "norm" in found.paragraph("zh")
    b.arrays[array_key("forward", 1, "fc")] *= np.float32(1.1)  # more than rounding
    assert judge_traces(a, b).verdict == "different"
    other = trace(other=True, steps=1)
    other.raised = "TypeError: unexpected keyword"
    assert judge_traces(trace(steps=1), other).reason == "raised"


@pytest.mark.parametrize("failed", [0, 1])
def test_an_error_is_placed_by_the_names_of_both_sides(failed: int) -> None:
    names = ("norm", "fc"), ("ln", "out")
    a, b = (
        SimpleNamespace(
            raised="ValueError: x" if side == failed else "",
            order=[list(names[side][:1]) if side == failed else [*names[side], OUTPUT]],
            modules=dict.fromkeys(names[side], f"Type{side}"),
        )
        for side in (0, 1)
    )
    pair: Any = SimpleNamespace(
        a=a, b=b, sides=("left", "right"), modules=dict(zip(*names, strict=True))
    )
    found = locate_error(pair)
    assert (found.layer, found.tensor, found.other) == ("fc", "fc", "out")
    assert (found.type, found.side) == ("Type0", pair.sides[failed])


@pytest.mark.parametrize(
    ("raised", "lacks"),
    [
        ("RuntimeError: Kernel select failed for op Conv3D", True),
        ("Primitive Xlogy is not registered on CPU", True),
        ("TypeError: unexpected keyword", False),
    ],
)
def test_a_missing_kernel_is_told_from_other_errors(raised: str, lacks: bool) -> None:
    assert lacks_operator(raised) is lacks


def test_nan_on_one_side_and_on_both() -> None:
    one = judge_traces(trace(), spoiled(set_nan, "forward", 1, "fc"))
    assert (one.verdict, one.first and one.first.kind) == ("different", "nan")
    assert "Only mindspore has NaN" in one.paragraph()
    a = trace()
    a.arrays[array_key("forward", 1, "fc")].flat[0] = np.nan
    both = judge_traces(a, spoiled(set_nan, "forward", 1, "fc"))
    assert (both.verdict, both.reason) == ("not comparable", "both_nan")
    assert both.first is not None
    assert both.first.layer == "fc"


def test_the_same_infinity_is_no_difference() -> None:
    x = np.array([1.0, -np.inf], np.float32)
    assert gap(x, x * np.float32(1)) == 0
    assert gap(x, np.array([1.0, np.inf], np.float32)) == np.inf
    assert [e["index"] for e in largest_differences(x, np.array([2.0, -np.inf], np.float32))] == [
        [0]
    ]


def test_other_shapes_of_outputs_and_of_modules() -> None:
    output = judge_traces(trace(), spoiled(lambda x: x[:, :1], "forward", 1, "(output)"))
    assert (output.verdict, output.first and output.first.kind) == ("different", "shape")
    assert "(4, 2)" in output.paragraph()
    inside = judge_traces(trace(), spoiled(lambda x: x.T, "forward", 1, "norm"))
    assert inside.verdict == "equal"
    assert [note.key for note in inside.notes] == ["layout"]
    assert inside.worst < 10  # what has another shape has no distance


def returning(*names: str) -> Trace:
    """Return a trace whose only output has these names."""
    b = trace(1e-7, other=True)
    for step in (1, 2):
        output = b.arrays.pop(array_key("forward", step, OUTPUT))
        b.arrays |= {array_key("forward", step, name): output for name in names}
    b.order = [["norm", "fc", *names]] * 2
    return b


def test_another_number_of_outputs() -> None:
    found = judge_traces(trace(), returning("(output)[0]", "(output)[1]"))
    assert (found.verdict, found.first and found.first.kind) == ("different", "outputs")


def test_outputs_in_another_container_are_compared_in_their_order() -> None:
    found = judge_traces(trace(), returning("(output)[last]"))
    assert found.verdict == "equal"
    assert [note.key for note in found.notes] == ["outputs"]
    assert "forward" in found.phases


def test_a_parameter_that_one_side_freezes() -> None:
    b = trace(1e-7, other=True)
    b.tensors[3] = replace(b.tensors[3], trained=False)
    first = judge_traces(trace(), b).first
    assert first is not None
    assert (first.phase, first.tensor, first.kind, first.side) == (
        "parameters",
        "fc.bias",
        "trained",
        "mindspore",
    )


def test_random_and_chaotic_models_are_not_comparable() -> None:
    b = trace(0.5, other=True)
    b.random = {"phase": "forward", "name": "drop", "type": "Dropout"}
    found = judge_traces(trace(), b)
    assert (found.verdict, found.reason) == ("not comparable", "random")
    assert "drop" in found.paragraph()
    wild = trace()
    assert wild.envelope is not None
    wild.envelope[array_key("loss", 1, "loss")] = 0.5
    assert judge_traces(wild, trace(1e-7, other=True)).equal  # the terms of the loss cancel
    wild.envelope[array_key("forward", 1, OUTPUT)] = 0.4
    assert judge_traces(wild, trace(1e-7, other=True)).reason == "chaotic"


def test_without_draws_the_tolerance_is_said_to_be_a_bound() -> None:
    a, b = trace(), trace(1e-7, other=True)
    a.envelope = b.envelope = None
    found = judge_traces(a, b)
    assert (found.verdict, found.tolerance) == ("equal", "bound")
    assert "rule of thumb" in found.paragraph()


def test_a_gradient_that_rounding_alone_turns_is_noted_not_judged() -> None:
    a, b = trace(), spoiled(lambda x: -x, "gradient", 1, "norm.gamma")
    assert judge_traces(a, b).verdict == "different"
    assert a.envelope is not None
    a.envelope[array_key("gradient", 1, "norm.weight")] = 0.05
    found = judge_traces(a, b)
    assert found.verdict == "equal"
    assert [note.key for note in found.notes] == ["wild"]
    assert "norm.weight" in found.paragraph()


@pytest.mark.parametrize(
    ("name", "inside"),
    [("h.1", True), ("h.1[0]", True), ("h.1.norm", True), ("h.10", False), ("h.1_gate", False)],
)
def test_a_module_is_reached_by_what_is_recorded_of_it(name: str, inside: bool) -> None:
    assert belongs_to(name, "h.1") is inside
