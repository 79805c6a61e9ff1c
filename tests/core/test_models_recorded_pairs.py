"""Parameters of two recorded traces are paired by their numbers, whatever their names."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from model_traces import trace

from dualml.common.errors import UserError
from dualml.parity import compare_traces
from dualml.parity.models.partners import Tensor
from dualml.parity.models.recorded_pairs import pair_by_value, pair_recorded_tensors
from dualml.parity.models.trace import Trace, array_key

DRAWN = np.random.default_rng(0).normal(size=(5, 3, 3)).astype(np.float32)
ONES = np.ones(3, np.float32)


def make_trace(framework: str, weights: dict[str, Any]) -> Trace:
    made = trace(other=framework == "mindspore", steps=1)
    made.framework, made.tensors = framework, [Tensor(n, v.shape) for n, v in weights.items()]
    made.arrays = {key: made.arrays[key] for key in made.arrays if key.startswith(("fo", "lo"))}
    for name, value in weights.items():
        for phase, step in (("parameters", 0), ("gradient", 1), ("update", 1)):
            made.arrays[array_key(phase, step, name)] = value
    return made


TORCH = {"q": DRAWN[0], "k": DRAWN[1], "v": DRAWN[2], "n1": ONES, "n2": ONES}
PORT = {"a": DRAWN[2], "b": DRAWN[0].T, "c": DRAWN[1], "s": ONES, "t": ONES}


def test_numbers_pair_what_order_would_confuse(tmp_path: Path) -> None:
    a, b = make_trace("torch", TORCH), make_trace("mindspore", PORT)
    assert pair_by_value(a, b) == {"q": "b", "k": "c", "v": "a"}
    a.write(tmp_path / "a")
    b.write(tmp_path / "b")
    found = compare_traces(tmp_path / "a", tmp_path / "b")
    assert found.verdict == "equal", found.paragraph()
    pairs = {pair["a"]: (pair["b"], pair["change"]) for pair in found.mapping}
    assert pairs == {
        "q": ("b", "transpose"),
        "k": ("c", ""),
        "v": ("a", ""),
        "n1": ("s", ""),
        "n2": ("t", ""),
    }


def test_the_users_map_comes_first(tmp_path: Path) -> None:
    a, b = make_trace("torch", TORCH), make_trace("mindspore", PORT)
    a.write(tmp_path / "a")
    b.write(tmp_path / "b")
    with pytest.raises(UserError, match="other initial weights: 1 of 5 differ, first q"):
        compare_traces(tmp_path / "a", tmp_path / "b", map={"q": "b"})


def test_equal_names_are_not_looked_into() -> None:
    a, b = make_trace("torch", TORCH), make_trace("mindspore", {**TORCH, "q": DRAWN[4]})
    assert pair_recorded_tensors(a, b, {}) == (b, {})


def test_one_number_more_is_another_parameter() -> None:
    other = DRAWN[2].copy()
    other[0, 0] += 1e-6
    a, b = make_trace("torch", TORCH), make_trace("mindspore", {**PORT, "a": other})
    assert pair_by_value(a, b) == {"q": "b", "k": "c"}


def test_a_bias_of_zeros_follows_its_weight(tmp_path: Path) -> None:
    zeros = np.zeros(3, np.float32)
    first = {
        "actor.weight": DRAWN[0],
        "actor.bias": zeros,
        "critic.weight": DRAWN[1],
        "critic.bias": zeros,
    }
    second = {"v.weight": DRAWN[1], "v.bias": zeros, "pi.weight": DRAWN[0], "pi.bias": zeros}
    a, b = make_trace("torch", first), make_trace("mindspore", second)
    a.write(tmp_path / "a")
    b.write(tmp_path / "b")
    found = compare_traces(tmp_path / "a", tmp_path / "b")
    assert found.verdict == "equal", found.paragraph()
    pairs = {pair["a"]: pair["b"] for pair in found.mapping}
    assert (pairs["actor.bias"], pairs["critic.bias"]) == ("pi.bias", "v.bias")
