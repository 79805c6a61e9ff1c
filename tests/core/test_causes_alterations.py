"""The mutations that are tried on one operation."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from dualml.parity.causes.context import dropout_rates
from dualml.parity.causes.global_settings import global_mutations
from dualml.parity.causes.mutation import MutationContext
from dualml.parity.causes.mutations import candidate_mutations
from dualml.parity.causes.settings import setting_values
from dualml.parity.models.operations import Operation
from dualml.parity.models.trace import Trace

AROUND = MutationContext((), (), {}, {}, ())


def call(number: int, name: str, **attributes: Any) -> Operation:
    return Operation(number, name, ("input:0",), attributes, ((4, 3),))


def trace_of(operations: list[Operation]) -> Trace:
    return Trace("torch", {}, [], {}, operations=operations)


@pytest.mark.parametrize(
    "name",
    [
        "cross_entropy",
        "nll_loss",
        "cat",
        "split",
        "lstm",
        "reshape",
        "embedding",
        "mul",
        "softmax",
        "__getitem__",
        "rsqrt",
        "where",
        "scaled_dot_product_attention",
        "max_pool2d",
    ],
)
@pytest.mark.parametrize("shapes", [[()], [(3,)], [(4, 3), ()], [(), (4,)], [(4, 3), (4,)]])
def test_shapes_of_all_kinds_are_no_error(name: str, shapes: list[tuple[int, ...]]) -> None:
    inputs = tuple(f"op:{i}" for i in range(len(shapes)))
    for output in ((), (4,), (4, 3)):
        one = Operation(9, name, inputs, {}, (output,))
        assert all(change.sites for change in candidate_mutations(one, shapes, AROUND))
        several = Operation(9, name, inputs, {}, (output, output, output))
        assert list(candidate_mutations(several, shapes, AROUND))


def test_settings_of_all_calls_of_one_function() -> None:
    ours = [call(i, "layer_norm", eps=1e-5) for i in (0, 3)] + [
        call(1, "gelu", approximate="none"),
        call(2, "layer_norm", eps=1e-6),
    ]
    theirs = [call(0, "LayerNorm", epsilon=1e-6), call(1, "GeLU")]
    found = global_mutations(trace_of(ours), trace_of(theirs))
    assert [(one.sites, one.argument, one.old, one.value) for one in found] == [
        ((0, 3), "eps", 1e-5, 1e-6),
        ((1,), "approximate", "none", "tanh"),
    ]


def test_rates_of_the_other_sides_dropout() -> None:
    assert dropout_rates(call(0, "Dropout", keep_prob=0.9)) == [0.1]
    assert dropout_rates(call(0, "dropout", p=0.5)) == [0.5]
    assert dropout_rates(call(0, "dropout", p=0.0)) == dropout_rates(call(0, "Muls", p=0.5)) == []


def test_rates_are_no_larger_than_one() -> None:
    around = replace(AROUND, numbers=(32.0, 0.3))
    assert set(setting_values("p", 0.2, call(0, "dropout", p=0.2), around)) > {0.3, 0.0, 1.0}
    assert max(setting_values("p", 0.2, call(0, "dropout", p=0.2), around)) == 1
    assert 32.0 in setting_values("p", 2.0, call(0, "normalize", p=2.0), around)


def test_the_default_stride_of_a_window_is_tried_and_no_size_that_takes_all_memory() -> None:
    pool = call(0, "avg_pool2d", stride=[])
    assert setting_values("stride", [], pool, AROUND) == [1, 2, 3]
    many = replace(AROUND, numbers=(4.0, 512.0, 1e6), sizes=(3, 4096))
    up = call(0, "interpolate", scale_factor=2.0)
    factors = setting_values("scale_factor", 2.0, up, many)
    assert 4.0 in factors
    assert max(factors) <= 8
