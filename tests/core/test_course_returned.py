"""A returned value of any type is read, or refused with the line of the student."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from dualml.common.words import LANGUAGES, Messages
from dualml.course.communicator import StudentCommunicator
from dualml.course.drive_lab3 import pack_lists
from dualml.course.drive_lab4 import orders
from dualml.course.exercise import Trouble
from dualml.course.rendering import trouble_text
from dualml.course.returned import (
    WrongReturn,
    find_return_line,
    read_attribute,
    read_number,
    read_numbers,
    read_tensor,
    read_tensors,
)

SOURCE = """import numpy as np

def by_hand(x):
    def inner(y):
        return y
    if x:
        return 1
    return 2

class Layer:
    def forward(self, x):
        self.y = x

    def backward(self, g):
        return g
"""


class Tensor:
    """A tensor of a framework."""

    def numpy(self) -> Any:
        return np.ones(2, np.float32)


def convert(value: Any) -> Any:
    return value.numpy()


def test_a_tensor_is_converted_and_nothing_else() -> None:
    assert read_tensor(Tensor(), convert, "f").tolist() == [1, 1]
    assert list(read_tensors((Tensor(), Tensor()), convert, "f")) == ["0", "1"]
    for wrong, said in (
        (None, "f(…): None → list of Tensor"),
        ([Tensor(), 3], "f(…)[1]: int → Tensor"),
        ([np.ones((2, 3))], "f(…)[0]: numpy.ndarray (2, 3) → Tensor"),
    ):
        with pytest.raises(WrongReturn) as raised:
            read_tensors(wrong, convert, "f")
        assert str(raised.value) == said
    with pytest.raises(WrongReturn, match=r"f\(…\): numpy\.ndarray \(1,\) → Tensor"):
        read_tensor(np.array([None]), np.array, "f")


def test_an_attribute_that_is_missing_or_no_tensor_is_said_by_its_name() -> None:
    made = SimpleNamespace(weight_grad=Tensor(), bias_grad=None)
    assert read_attribute(made, "weight_grad", convert, "Layer.backward").tolist() == [1, 1]
    for name, said in (
        ("bias_grad", "Layer.bias_grad: None → Tensor"),
        ("other", "Layer.other: no attribute → Tensor"),
    ):
        with pytest.raises(WrongReturn) as raised:
            read_attribute(made, name, convert, "Layer.backward")
        assert (str(raised.value), raised.value.function) == (said, "Layer.backward")


def test_a_number_may_be_anything_that_is_one() -> None:
    assert read_number(np.array(2.5), "f") == 2.5
    assert read_numbers(np.array([1, 2]), "f") == [1.0, 2.0]
    for wrong in (None, "x", [1.0], np.ones(2)):
        with pytest.raises(WrongReturn, match=r"f\(…\): .* → float"):
            read_number(wrong, "f")
    with pytest.raises(WrongReturn, match="None → list of float"):
        read_numbers(None, "f")


@pytest.mark.parametrize(
    ("function", "line"),
    [("by_hand", 8), ("Layer.backward", 15), ("Layer.forward", 11), ("Layer", 10), ("other", 0)],
)
def test_the_line_is_that_of_the_last_return(function: str, line: int) -> None:
    assert find_return_line(SOURCE, function) == line


def test_lists_and_orders_of_another_type_are_said() -> None:
    for wrong in ("abc", None, [[1], [2, 3]]):
        with pytest.raises(WrongReturn, match=r"draw\(…\): .* → array of integers"):
            pack_lists([wrong], "draw")
    options = {"stages": 1, "micro_batches": 1, "kind": "1f1b"}
    for wrong, said in (
        (None, r"schedule\(…\): None → list"),
        ([None], r"schedule\(…\): None → list"),
        ([[("F", 0), ("b", 0)]], r"schedule\(…\)\[0\]\[1\]: \('b', 0\) → "),
        ([["F00"]], r"schedule\(…\)\[0\]\[0\]: 'F00' → "),
    ):
        module = SimpleNamespace(schedule=lambda *_, wrong=wrong: wrong)
        with pytest.raises(WrongReturn, match=said):
            orders(module, "schedule", options, {})


def test_a_number_is_no_tensor_for_the_communicator() -> None:
    comm = StudentCommunicator(SimpleNamespace(), 0, 2, np.array, lambda a, like: a)  # type: ignore[arg-type]
    for call in (
        lambda: comm.all_reduce(3),
        lambda: comm.exchange({}, {1: 2.0}),
        lambda: comm.broadcast(None),
    ):
        with pytest.raises(TypeError, match=r"comm takes tensors; received (int|float|None)"):
            call()


@pytest.mark.parametrize("lang", LANGUAGES)
def test_it_is_shown_with_the_line(lang: str) -> None:
    trouble = Trouble("returned", "f(…): None → float", "f.py", 8, "return 2")
    text = trouble_text(trouble, "f", 1, Messages(lang))
    assert "f(…): None → float" in text
    assert "return 2" in text
    assert "8" in text
