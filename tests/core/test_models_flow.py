"""Values that two traces share whatever their names, and where they first differ."""

from __future__ import annotations

import json
import sys
from typing import Any

import numpy as np
import pytest
from pydantic import TypeAdapter

from dualml.parity.causes.evidence import find_relations
from dualml.parity.models.operations import LIMIT_TABLE, Operation, SourceLocation, Tape
from dualml.parity.models.value_matching import TraceOperand, ValueIndex, same_values

RNG = np.random.default_rng(0)
X = RNG.standard_normal((2, 3, 4)).astype(np.float32)


def tape() -> Tape:
    return Tape(np.asarray, skip=("/nowhere",))


def test_a_value_is_found_in_another_shape_and_with_its_axes_in_another_order() -> None:
    values = ValueIndex()
    values.add("x", X)
    assert values.find(X.reshape(6, 4), 1e-6) == "x"
    assert values.find(X.transpose(2, 0, 1), 1e-6) == "x"
    assert values.find(X[::-1], 1e-6) is None
    assert values.find(X * np.float32(1.001), 1e-6) is None
    assert values.find(X * np.float32(1.001), 1e-2) == "x"


def test_masked_scores_are_one_however_low() -> None:
    scores = X.copy()
    scores[0, 1] = -1e9
    values = ValueIndex()
    values.add("scores", np.where(scores == -1e9, -np.inf, scores))
    assert values.find(scores, 1e-6) == "scores"
    assert values.find(np.where(scores == -1e9, -10, scores), 1e-6) is None
    low = np.full((2, 2), -2e5, np.float32)  # no mask: nothing else beside it
    values.add("low", low)
    assert values.find(low * 2, 1e-6) is None


def test_indices_and_masks_are_not_turned() -> None:
    mask = np.array([[True, False], [True, True]])
    assert not same_values(mask, mask.T, 1e-6)
    assert same_values(mask, mask.copy(), 0.0)


def test_the_tape_knows_where_a_tensor_came_from() -> None:
    one = tape()
    x, w = X.copy(), RNG.standard_normal((4, 4)).astype(np.float32)
    one.register(x, "input:0")
    one.register(w, "parameter:w")
    y = x @ w
    one.record_call("matmul", [x, w], {"scale": 0.5, "dim": [0, 1]}, [y], sys._getframe())
    z = y[0] + 1  # a view that nobody has told
    one.record_call("add", [y[0], np.full((), 1.5)], {}, [z], sys._getframe())
    first, second = one.calls
    assert first.inputs == ("input:0", "parameter:w")
    assert first.attributes == {"scale": 0.5, "dim": [0, 1]}
    assert first.outputs == ((2, 3, 4),)
    assert second.inputs == ("table:2", "constant:1.5")
    assert isinstance(first.place, SourceLocation)
    assert first.place.file == __file__
    told = json.dumps(first.describe())
    assert TypeAdapter(Operation).validate_json(told) == first


def test_the_text_of_a_call_is_that_of_its_expression() -> None:
    one = tape()

    def noted(x: Any) -> Any:
        one.record_call("add", [], {}, [x], sys._getframe(1))
        return x

    _ = noted(X) + noted(X * 2)
    assert [call.place.code for call in one.calls if call.place] == ["noted(X)", "noted(X * 2)"]


def operation(number: int, inputs: tuple[str, ...], shape: tuple[int, ...] = (2,)) -> Operation:
    return Operation(number, f"f{number}", inputs, {}, (shape,))


def side(shared: set[str], *inputs: tuple[str, ...]) -> TraceOperand:
    calls = [operation(i, given) for i, given in enumerate(inputs)]
    arrays = {f"op:{i}": np.ones(2) for i in range(len(inputs))}
    end = frozenset({f"op:{len(inputs) - 1}"})
    return TraceOperand(calls, arrays, end, dict.fromkeys(shared, "there"))


def test_what_a_fused_kernel_hides_is_not_lost() -> None:
    one = side({"op:0", "op:2", "op:3"}, (), ("op:0",), ("op:1",), ("op:2",))
    assert one.unmatched() == set()


def test_lost_values_begin_where_the_inputs_are_still_shared() -> None:
    one = side({"op:0", "op:1"}, (), ("op:0",), ("op:1",), ("op:2", "op:0"))
    lost = one.unmatched()
    assert lost == {"op:2", "op:3"}
    assert [origin.number for origin in one.origins(lost)] == [2]


@pytest.mark.parametrize(
    ("other", "key"),
    [
        (-X, "negative"),
        (X * 0.25, "ratio"),
        (X + np.float32(3), "offset"),
        (np.roll(X, 1, 2), "shifted"),
        (X[::-1].copy(), "permuted"),
    ],
)
def test_simple_relations_are_named(other: Any, key: str) -> None:
    assert find_relations(X, other)[0]["key"] == key


def test_it_is_said_which_elements_differ() -> None:
    other = X.copy()
    other[:, 1] += 1
    (row,) = find_relations(X, other)
    assert (row["key"], row["axis"], row["indices"]) == ("some", 1, [1])
    assert find_relations(X, RNG.standard_normal(X.shape)) == []


def test_a_large_parameter_in_another_wrapper_is_told_by_its_memory() -> None:
    weight = np.arange(LIMIT_TABLE + 1, dtype=np.float32)
    read: list[int] = []

    def array(tensor: Any) -> Any:
        read.append(tensor.size)
        return np.asarray(tensor)

    known = Tape(array, skip=(), address=lambda tensor: tensor.ctypes.data)
    known.register(weight, "parameter:w", is_fixed=True)
    assert known.find_source(weight[:]) == "parameter:w"
    assert not read  # neither it nor the parameter
    assert known.find_source(weight[: LIMIT_TABLE // 2]) != "parameter:w"
    assert known.find_source(weight.copy()) == "parameter:w"  # by its contents
