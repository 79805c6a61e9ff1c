"""Settings that both sides state differently, and the slices that confirm them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dualml.parity.causes.mutation import Mutation
from dualml.parity.causes.stated import StatedSettings, canonical_name, stated_mutations
from dualml.parity.causes.stated_slices import confirm_nearby
from dualml.parity.models.operations import Operation
from dualml.parity.models.stated import plain_settings, read_settings, write_settings
from dualml.parity.models.trace import Trace, array_key

PAIRS = {"norm": "ln", "block.norm": "block.ln"}


def call(number: int, name: str, module: str, *inputs: str, **attributes: Any) -> Operation:
    return Operation(number, name, inputs, attributes, ((4, 4),), None, module)


def test_an_attribute_with_another_value_is_set_at_all_calls_of_its_modules() -> None:
    ours = [
        call(0, "layer_norm", "norm", eps=1e-5),
        call(1, "relu", "", inplace=False),
        call(2, "layer_norm", "block.norm", eps=1e-5),
    ]
    stated = StatedSettings(
        {"norm": {"eps": 1e-5}, "block.norm": {"eps": 1e-5}},
        {"ln": {"epsilon": 1e-7}, "block.ln": {"epsilon": 1e-7}},
        PAIRS,
    )
    expected = Mutation("attribute", "set", (0, 2), "layer_norm", "eps", 1e-7, 1e-5)
    assert stated_mutations(ours, [], stated) == [expected]
    same = StatedSettings(stated.a, {"ln": {"epsilon": 1e-5}}, {"norm": "ln"})
    assert stated_mutations(ours, [], same) == []


def test_numbers_in_the_source_of_both_sides() -> None:
    ours = [call(0, "pow", "norm", exponent=2), call(1, "add", "norm", "op:0", other=1e-5)]
    theirs = [call(0, "AddExt", "ln", "op:7", "constant:9.99999997e-07")]
    stated = StatedSettings({}, {}, PAIRS)
    expected = Mutation("constant", "set", (1,), "add", "other", 1e-6, 1e-5)
    assert stated_mutations(ours, theirs, stated) == [expected]
    # The same number in float32 is no difference.
    theirs = [call(0, "AddExt", "ln", "op:7", "constant:9.99999975e-06")]
    assert stated_mutations(ours, theirs, stated) == []


def test_a_share_that_the_other_framework_counts_from_one() -> None:
    ours = [call(0, "batch_norm", "norm", momentum=0.1)]
    same = StatedSettings({"norm": {"momentum": 0.1}}, {"ln": {"momentum": 0.9}}, PAIRS)
    assert stated_mutations(ours, [], same) == []
    other = StatedSettings({"norm": {"momentum": 0.1}}, {"ln": {"momentum": 0.99}}, PAIRS)
    found = stated_mutations(ours, [], other)
    assert [one.value for one in found] == [0.01, 0.99]


def test_words_flags_and_axes() -> None:
    ours = [call(0, "gelu", "norm", approximate="none"), call(1, "softmax", "norm", dim=-1)]
    stated = StatedSettings(
        {"norm": {"approximate": "none", "dim": -1}},
        {"ln": {"approximate": True, "axis": 1}},
        PAIRS,
    )
    found = [(one.argument, one.value) for one in stated_mutations(ours, [], stated)]
    assert found == [("approximate", "tanh"), ("dim", 1)]
    assert canonical_name("variance_epsilon") == "eps"
    assert canonical_name("Axis") == "dim"


class Scaling:
    """A model whose call 1 adds its setting to ones."""

    def __init__(self) -> None:
        self.sites: list[int] = []

    def probe(
        self, change: Mutation, calls: int, visit: Callable[[str, NDArray[Any]], bool]
    ) -> None:
        self.sites += change.sites
        if change.argument == "refused":
            raise ValueError
        if change.argument != "momentum":
            visit("op:1", np.full((4, 4), 1 + change.value, np.float32))


def slices() -> tuple[Trace, Trace]:
    a, b = Trace("torch", {}, [], {}), Trace("mindspore", {}, [], {})
    a.operations = [call(0, "mul", ""), call(1, "add", "norm", "op:0", other=0.01)]
    b.operations = [call(0, "Mul", ""), call(1, "Add", "ln", "op:0")]
    a.arrays[array_key("operation", 1, "op:1")] = np.full((4, 4), 1.01, np.float32)
    b.arrays[array_key("operation", 1, "op:1")] = np.full((4, 4), 1.02, np.float32)
    return a, b


def test_a_slice_refutes_a_setting_that_moves_away_from_the_other_side() -> None:
    a, b = slices()
    right = Mutation("attribute", "set", (1,), "add", "other", 0.02, 0.01)
    wrong = Mutation("attribute", "set", (1,), "add", "other", 0.5, 0.01)
    refused = Mutation("attribute", "set", (1,), "add", "refused", 0.02, 0.01)
    kept = Mutation("attribute", "set", (1,), "batch_norm", "momentum", 0.02, 0.01)
    found = confirm_nearby(Scaling(), [wrong, kept, refused, right], a, b, PAIRS)
    assert found == [right, kept]


def test_only_the_first_calls_are_replayed() -> None:
    a, b = slices()
    model = Scaling()
    everywhere = Mutation("attribute", "set", (1, 1, 1, 1, 1), "add", "other", 0.02, 0.01)
    assert confirm_nearby(model, [everywhere], a, b, PAIRS) == [everywhere]
    assert model.sites == [1, 1, 1]


def test_settings_are_kept_beside_the_trace(tmp_path: Path) -> None:
    class Layer:
        def __init__(self) -> None:
            self.eps, self.stride, self.name = 1e-5, (2, 2), "same"
            self._hidden, self.weight, self.axes = 3, np.ones(3), list(range(99))

    row = plain_settings(vars(Layer()).items())
    assert row == {"eps": 1e-5, "stride": [2, 2], "name": "same"}
    write_settings(tmp_path, "a", {"norm": row, "": {}})
    assert read_settings(tmp_path, "a") == {"norm": row}
    assert read_settings(tmp_path, "b") == {}
