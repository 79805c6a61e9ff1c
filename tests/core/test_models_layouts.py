"""Changes of layout, the user's map with its words, pieces in groups and along columns."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dualml.common.errors import UserError
from dualml.parity.models.cuts import plan_cuts
from dualml.parity.models.layouts import apply_words, changed_shape, invert_change
from dualml.parity.models.mapping import match_tensors
from dualml.parity.models.pairing import MatchedTensors
from dualml.parity.models.partners import Tensor, apply_change
from dualml.parity.models.pieces import cut_tensors, describe_cut, read_cut
from dualml.parity.models.user_map import flat_map

Shapes = dict[str, tuple[int, ...]]


def tensors(shapes: Shapes) -> list[Tensor]:
    return [Tensor(name, shape) for name, shape in shapes.items()]


def match(a: Shapes, b: Shapes, asked: Any) -> MatchedTensors:
    cuts = plan_cuts(tensors(a), tensors(b), asked)
    first, second = cut_tensors(tensors(a), cuts[0]), cut_tensors(tensors(b), cuts[1])
    return MatchedTensors(match_tensors(first, second, asked), first, second, cuts)


def leave(tensor: Tensor, arrays: Any) -> None:
    """Give a parameter without a partner no value."""


def draw(shapes: Shapes) -> dict[str, Any]:
    rng = np.random.default_rng(1)
    return {name: rng.normal(size=shape) for name, shape in shapes.items()}


def test_interleaving_is_the_permutation_of_the_published_converters() -> None:
    heads, dims, width = 2, 6, 3
    pairs = np.arange(heads * dims * width).reshape(heads * dims, width)
    # As a published converter turns weights for pairs into those for halves.
    halves = pairs.reshape(heads, dims // 2, 2, width).transpose(0, 2, 1, 3).reshape(pairs.shape)
    assert (apply_words(pairs, ["deinterleave:2"], pairs.shape) == halves).all()
    assert (apply_words(halves, ["interleave:2"], pairs.shape) == pairs).all()
    part = apply_words(np.arange(12), ["interleave:2:4"], (12,))
    assert part.tolist() == [0, 2, 1, 3, 4, 5, 6, 8, 7, 9, 10, 11]


@pytest.mark.parametrize(
    ("change", "shape", "other"),
    [
        ("interleave:2", (8, 3), (8, 3)),
        ("interleave:2+transpose", (8, 3), (3, 8)),
        ("transpose+deinterleave:2:2", (3, 8), (8, 3)),
        ("interleave:4+reshape", (8, 3), (8, 1, 3)),
        ("transpose+reshape", (3, 8), (2, 4, 3)),
        ("heads:2", (8, 3), (2, 4, 3)),
        ("heads:4+transpose", (8, 3), (4, 3, 2)),
        ("transpose+heads:4+transpose", (3, 8), (4, 3, 2)),
        ("heads:4", (24,), (4, 6)),
    ],
)
def test_the_way_back(change: str, shape: tuple[int, ...], other: tuple[int, ...]) -> None:
    array = np.arange(24).reshape(shape)
    there = apply_change(array, change, other)
    assert there.shape == other
    assert (apply_change(there, invert_change(change), shape) == array).all()


def test_heads_that_do_not_fit() -> None:
    assert changed_shape((9, 2), ["interleave:2"]) is None
    assert changed_shape((6, 2), ["interleave:2"]) is None  # three rows have no halves
    assert changed_shape((9, 2), ["heads:2"]) is None
    assert changed_shape((3, 3, 2), ["merge:2"]) is None
    for word in ("interleave:2", "heads:2"):
        with pytest.raises(UserError, match="the shapes differ"):
            match({"q": (9, 2)}, {"p": (9, 2)}, {"q": ["p", word]})


def test_matrices_of_each_head_are_those_of_a_published_converter() -> None:
    """The fused matrix is stored (in, out), the other side has one of each head."""
    a = {"c_attn.weight": (6, 18), "c_attn.bias": (18,), "o.weight": (6, 6)}
    b = (
        {f"W_{n}": (2, 6, 3) for n in "QKV"}
        | {f"b_{n}": (2, 3) for n in "QKV"}
        | {"W_O": (2, 3, 6)}
    )
    asked = {
        "c_attn.weight": ["W_Q", "W_K", "W_V", "transpose", "heads:2", "transpose"],
        "c_attn.bias": ["b_Q", "b_K", "b_V", "heads:2"],
        "o.weight": ["W_O", "transpose", "heads:2"],
    }
    found = match(a, b, asked)
    arrays = draw(a)
    there = dict(found.carry_to_second(arrays, leave))
    keys = arrays["c_attn.weight"][:, 6:12].reshape(6, 2, 3).transpose(1, 0, 2)
    assert (there["W_K"] == keys).all()
    assert (there["b_V"] == arrays["c_attn.bias"][12:].reshape(2, 3)).all()
    assert (there["W_O"] == arrays["o.weight"].T.reshape(2, 3, 6)).all()
    back = dict(found.carry_to_first(there, leave))
    assert all(back[name].tobytes() == array.tobytes() for name, array in arrays.items())


def test_a_map_with_all_words_leads_there_and_back() -> None:
    a = {"q.weight": (8, 3), "qkv": (16, 3), "conv": (5, 12), "w": (4, 4)}
    b = {"wq": (3, 8), "k1": (4, 3), "k2": (4, 3), "k3": (8, 3), **{f"d{i}": (4, 5) for i in "012"}}
    b["w"] = (4, 4)
    asked = {
        "q.weight": ["wq", "interleave:2"],
        "qkv": ["k1", "k2", "k3", "groups:2"],
        "conv": ["d0", "d1", "d2"],
        "w": ["w", "transpose"],
    }
    found = match(a, b, asked)
    assert found.cuts == ({"qkv": (4, 4, 8), "conv": (4, 4, 4)}, {})
    arrays = draw(a)
    there = dict(found.carry_to_second(arrays, leave))
    assert {name: x.shape for name, x in there.items()} == b
    assert (there["wq"] == apply_words(arrays["q.weight"], ["interleave:2", "transpose"], ())).all()
    rows = arrays["qkv"].reshape(2, 8, 3)
    assert (there["k1"] == rows[:, :2].reshape(4, 3)).all()
    assert (there["k3"] == rows[:, 4:].reshape(8, 3)).all()
    assert (there["d1"] == arrays["conv"][:, 4:8].T).all()
    assert (there["w"] == arrays["w"].T).all()
    back = dict(found.carry_to_first(there, leave))
    assert back.keys() == arrays.keys()
    assert all(back[name].tobytes() == array.tobytes() for name, array in arrays.items())


def test_several_on_the_first_side_are_one_on_the_second() -> None:
    a = {"q": (4, 3), "k": (2, 3), "v": (2, 3)}
    asked = {"q": ["qkv[0]", "groups:2"], "k": ["qkv[1]", "groups:2"], "v": ["qkv[2]"]}
    found = match(a, {"qkv": (8, 3)}, asked)
    arrays = draw(a)
    (fused,) = found.carry_to_second(arrays, leave).values()
    expected = [arrays[n].reshape(2, -1, 3) for n in "qkv"]
    assert (fused == np.concatenate(expected, 1).reshape(8, 3)).all()


def test_columns_are_cut_where_a_matrix_is_stored_as_in_out() -> None:
    found = match({"c_attn.weight": (6, 18)}, {f"{n}.weight": (6, 6) for n in "qkv"}, {})
    assert [pair.a for pair in found.pairing.pairs] == [f"c_attn.weight[{i}]" for i in range(3)]
    arrays = draw({"c_attn.weight": (6, 18)})
    there = found.carry_to_second(arrays, leave)
    pair = found.pairing.pairs[1]
    assert (
        apply_change(there[pair.b], pair.change, (6, 6)) == arrays["c_attn.weight"][:, 6:12]
    ).all()
    cut = found.cuts[0]["c_attn.weight"]
    assert describe_cut(read_cut(describe_cut(cut))) == [1, 1, 6, 6, 6]


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"qkv": ["q", "k", "interleave:2"]}, "interleave:2 applies to one piece"),
        ({"q": ["p", "groups:2"]}, "name a piece, as q\\[0\\]"),
        ({"qkv[0]": ["k1", "groups:2"], "qkv[1]": ["k2", "groups:4"]}, "2 groups and 4"),
        ({"qkv": ["k1", "k2", "groups:3"]}, "cannot be cut into pieces"),
    ],
)
def test_words_that_contradict_the_shapes(asked: Any, said: str) -> None:
    a, b = {"qkv": (8, 3), "q": (2,)}, {"k1": (4, 3), "k2": (4, 3), "p": (2,), "q": (2,), "k": (2,)}
    with pytest.raises(UserError, match=said):
        match(a, b, asked)


def test_a_flat_map_has_one_partner_for_each_name() -> None:
    asked = {"a": "b", "qkv": ["q", "k", "transpose"], "x[0]": ["y", "groups:2", "interleave:2"]}
    assert flat_map(asked) == {
        "a": ["b"],
        "qkv[0]": ["q", "transpose"],
        "qkv[1]": ["k", "transpose"],
        "x[0]": ["y", "interleave:2"],
    }
