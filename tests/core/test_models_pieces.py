"""One tensor on one side that is several tensors on the other."""

from __future__ import annotations

import numpy as np

from dualml.parity.models.cuts import plan_cuts
from dualml.parity.models.mapping import match_tensors
from dualml.parity.models.partners import Tensor
from dualml.parity.models.pieces import cut_arrays, cut_tensors, find_cuts, join_pieces


def tensors(**shapes: tuple[int, ...]) -> list[Tensor]:
    return [Tensor(name, shape) for name, shape in shapes.items()]


def test_what_is_longer_by_as_much_as_the_other_side_has_more_is_cut() -> None:
    a = tensors(w=(12, 4), bias=(12,), out=(4, 4), scale=(4,))
    b = tensors(q=(4, 4), k=(4, 4), v=(4, 4), q0=(4,), k0=(4,), v0=(4,), out=(4, 4), scale=(4,))
    assert find_cuts(a, b) == ({"w": (4, 4, 4), "bias": (4, 4, 4)}, {})
    assert find_cuts(b, a) == ({}, {"w": (4, 4, 4), "bias": (4, 4, 4)})
    assert [one.name for one in cut_tensors(a, {"w": (4, 4, 4)})][:3] == ["w[0]", "w[1]", "w[2]"]


def test_nothing_is_cut_where_the_numbers_do_not_add_up() -> None:
    a = tensors(w=(12, 4), out=(4, 4))
    assert find_cuts(a, tensors(q=(4, 4), k=(4, 4), out=(4, 4))) == ({}, {})
    assert find_cuts(a, tensors(w=(12, 4), q=(4, 4))) == ({}, {})
    constant = [Tensor("mask", (12, 4), trained=False)]
    assert find_cuts(constant, tensors(q=(4, 4), k=(4, 4), v=(4, 4))) == ({}, {})


def test_arrays_are_cut_where_they_are_named_like_parameters_and_joined_again() -> None:
    whole = np.arange(12.0).reshape(6, 2)
    arrays = {"state/00000001/exp_avg/w": whole, "forward/00000001/w": whole}
    found = cut_arrays(arrays, {"w": (3, 3)})
    assert list(found) == [
        "state/00000001/exp_avg/w[0]",
        "state/00000001/exp_avg/w[1]",
        "forward/00000001/w",
    ]
    np.testing.assert_array_equal(found["state/00000001/exp_avg/w[1]"], whole[3:])
    again = join_pieces(cut_arrays({"w": whole}, {"w": (3, 3)}), {"w": (3, 3)})
    np.testing.assert_array_equal(again["w"], whole)
    assert (
        join_pieces({"w[0]": whole}, {"w": (3, 3)}) == {}
    )  # a piece has no partner: its own stays


def test_pieces_of_other_lengths_lie_side_by_side_in_the_other_list() -> None:
    a = tensors(features=(28, 8), head=(1, 8, 1, 1))
    b = tensors(users=(12, 8), items=(10, 8), kinds=(6, 8), head=(1, 8))
    assert find_cuts(a, b) == ({"features": (12, 10, 6)}, {})
    assert find_cuts(b, a) == ({}, {"features": (12, 10, 6)})
    both = tensors(qkv=(12, 4), mixed=(7, 4))
    apart = tensors(q=(4, 4), k=(4, 4), v=(4, 4), dt=(3, 4), b=(4, 4))
    assert find_cuts(both, apart) == ({"qkv": (4, 4, 4), "mixed": (3, 4)}, {})


def test_what_is_only_stored_the_other_way_round_is_not_cut() -> None:
    a = tensors(inward=(64, 16), rows=(32, 16), more=(32, 16))
    b = tensors(inward=(16, 64), rows=(32, 16), more=(32, 16), own=(24, 16), last=(40, 16))
    assert find_cuts(a, b) == ({}, {})


def test_a_map_pairs_pieces_of_both_sides_in_another_order() -> None:
    sides = [[Tensor("qkv.weight", (12, 4)), Tensor("o.weight", (4, 4))] for _ in "ab"]
    asked = {"qkv.weight[0]": "qkv.weight[1]", "qkv.weight[1]": "qkv.weight[0]"}
    assert plan_cuts(*sides, asked) == ({"qkv.weight": (6, 6)}, {"qkv.weight": (6, 6)})
    cut = [
        cut_tensors(side, cuts) for side, cuts in zip(sides, plan_cuts(*sides, asked), strict=True)
    ]
    pairs = match_tensors(*cut, asked, ("A", "B")).pairs
    assert {pair.a: pair.b for pair in pairs} == {**asked, "o.weight": "o.weight"}
    uneven = {f"qkv.weight[{i}]": f"qkv.weight[{4 - i}]" for i in range(5)}
    assert plan_cuts(*sides, uneven) == ({}, {})
