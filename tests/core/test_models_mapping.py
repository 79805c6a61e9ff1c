"""Users' own models without a framework: matching tensors and modules of two sides."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dualml.common.errors import UserError
from dualml.parity.models.layers import pair_modules
from dualml.parity.models.mapping import find_tied_value, match_tensors
from dualml.parity.models.partners import (
    Pairing,
    Tensor,
    TensorPair,
    apply_change,
    canonical_name,
    find_change,
)

Shapes = dict[str, tuple[int, ...]]


def tensors(shapes: Shapes) -> list[Tensor]:
    fixed = ("running_mean", "running_var", "moving_mean", "moving_variance", "mask")
    return [Tensor(name, shape, not name.endswith(fixed)) for name, shape in shapes.items()]


def pairs(a: Shapes, b: Shapes, asked: Any = None) -> dict[str, tuple[str, str, str]]:
    found = match_tensors(tensors(a), tensors(b), asked)
    return {pair.a: (pair.b, pair.how, pair.change) for pair in found.pairs}


def test_names_and_words_of_both_frameworks_are_one() -> None:
    torch = {
        "bn.weight": (3,),
        "bn.bias": (3,),
        "bn.running_mean": (3,),
        "bn.running_var": (3,),
        "bn.num_batches_tracked": (),
        "emb.weight": (9, 4),
        "act.weight": (1,),
        "rnn.weight_ih_l0_reverse": (8, 4),
    }
    ms = {
        "bn.moving_mean": (3,),
        "bn.moving_variance": (3,),
        "bn.gamma": (3,),
        "bn.beta": (3,),
        "emb.embedding_table": (9, 4),
        "act.w": (1,),
        "rnn.weight_ih_l0_reverse": (8, 4),
    }
    assert pairs(torch, ms) == {
        "bn.weight": ("bn.gamma", "word", ""),
        "bn.bias": ("bn.beta", "word", ""),
        "bn.running_mean": ("bn.moving_mean", "word", ""),
        "bn.running_var": ("bn.moving_variance", "word", ""),
        "emb.weight": ("emb.embedding_table", "word", ""),
        "act.weight": ("act.w", "word", ""),
        "rnn.weight_ih_l0_reverse": ("rnn.weight_ih_l0_reverse", "name", ""),
    }


@pytest.mark.parametrize(
    ("a", "b", "how"),
    [
        ({"0.weight": (2, 3)}, {"layers.0.weight": (2, 3)}, ("ending", "")),
        ({"net.norm.weight": (2,)}, {"norm.gamma": (2,)}, ("ending", "")),
        ({"fc.weight": (2, 3)}, {"fc.weight": (3, 2)}, ("name", "transpose")),
        ({"conv.weight": (6, 5, 3)}, {"conv.weight": (6, 5, 1, 3)}, ("name", "reshape")),
        (
            {"fc.weight": (2, 3), "fc.bias": (2,)},
            {"head.weight": (2, 3), "head.bias": (2,)},
            ("block", ""),
        ),
        (
            {"fc.weight": (2, 3), "fc.bias": (2,)},
            {"head.weight": (3, 2), "out.bias": (2,)},
            ("block", "transpose"),
        ),
        ({"a.w1": (2, 3), "a.w2": (2, 3)}, {"p": (2, 3), "q": (2, 3)}, ("order", "")),
    ],
)
def test_the_way_a_partner_is_found(a: Shapes, b: Shapes, how: tuple[str, str]) -> None:
    found = pairs(a, b)
    assert [partner for partner, _, _ in found.values()] == list(b)
    first = next(iter(found.values()))
    assert first[1:] == how or (first[1] == "order" and how[1] == first[2])


def test_names_go_before_order_even_where_the_order_fits() -> None:
    """Names take precedence over order: both matrices would fit in order, but their names say that
    they are transposed."""
    a: Shapes = {"x.weight": (4, 8), "y.weight": (8, 4)}
    b: Shapes = {"x.weight": (8, 4), "y.weight": (4, 8)}
    assert pairs(a, b) == {
        "x.weight": ("x.weight", "name", "transpose"),
        "y.weight": ("y.weight", "name", "transpose"),
    }


def test_what_the_user_says_goes_first() -> None:
    a: Shapes = {"p": (3, 3), "q": (3, 3)}
    b: Shapes = {"r": (3, 3), "s": (3, 3)}
    asked = {"p": ("s", "transpose")}
    assert pairs(a, b, asked)["p"] == ("s", "asked", "transpose")
    assert pairs(a, b, asked)["q"][0] == "r"


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"x": "r"}, "torch has no parameter 'x'"),
        ({"p": "x"}, "mindspore has no parameter 'x'"),
        ({"p": ("r", "turn")}, "after the name only 'transpose'"),
        ({"p": "s"}, r"p \(3, 3\) cannot be s \(2,\): the shapes differ"),
        ({"p": "r", "q": "r"}, "'r' is named twice"),
    ],
)
def test_a_map_that_cannot_be_meant(asked: Any, said: str) -> None:
    with pytest.raises(UserError, match=said):
        match_tensors(tensors({"p": (3, 3), "q": (3, 3)}), tensors({"r": (3, 3), "s": (2,)}), asked)


def test_two_models_that_share_little_are_refused_with_the_nearest_shapes() -> None:
    a = tensors({"a.weight": (4, 4), "fc.weight": (10, 84), "fc.bias": (12,)})
    b = tensors({"a.weight": (4, 4), "head.weight": (10, 85), "head.bias": (10,)})
    with pytest.raises(UserError) as caught:
        match_tensors(a, b)
    assert str(caught.value) == (
        "parameters without a partner: 2 of 3 in torch: fc.weight (10, 84) (nearest: head.weight "
        "(10, 85), head.bias (10,)), fc.bias (12,) (nearest: head.bias (10,), head.weight "
        "(10, 85)); 2 of 3 in mindspore: head.weight (10, 85) (nearest: fc.weight (10, 84), "
        "fc.bias (12,)), head.bias (10,) (nearest: fc.bias (12,), fc.weight (10, 84)); these are "
        "two models, or they keep the same numbers in other pieces: cut one of them like the other "
        "to compare them"
    )


def test_one_matrix_for_three_is_no_difference_of_the_models() -> None:
    a = tensors({"in.weight": (12, 4), "out.weight": (4, 4), "a": (5,), "b": (6,)})
    b = tensors(dict.fromkeys(("q.weight", "k.weight", "v.weight", "out.weight"), (4, 4)))
    b += tensors({"a": (5,), "b": (6,)})
    with pytest.raises(UserError, match="the same numbers in other pieces"):
        match_tensors(a, b)


def test_a_layer_of_another_size_is_a_difference_not_an_error() -> None:
    a = tensors({"a.weight": (4, 4), "b.weight": (4, 4), "fc.weight": (10, 84), "fc.bias": (10,)})
    b = tensors({"a.weight": (4, 4), "b.weight": (4, 4), "fc.weight": (10, 85), "fc.bias": (10,)})
    found = match_tensors(a, b)
    assert [pair.a for pair in found.pairs] == ["a.weight", "b.weight", "fc.bias"]
    assert found.unpaired_parameters == (("fc.weight",), ("fc.weight",))


def test_of_two_of_a_kind_the_one_whose_name_is_more_alike_has_a_partner() -> None:
    found = match_tensors(
        tensors({"a.w": (2, 2), "b.w": (2, 2), "head": (3,)}), tensors({"b.x": (2, 2), "top": (3,)})
    )
    first = found.pairs[0]
    assert (first.a, first.b, first.how) == ("b.w", "b.x", "order")
    assert found.unpaired_parameters == (("a.w",), ())


def test_a_bias_that_one_side_does_not_have_is_a_difference_not_an_error() -> None:
    a = tensors({"0.weight": (4, 3), "0.bias": (4,), "1.weight": (4, 4), "1.bias": (4,)})
    found = match_tensors(a, tensors({"c.weight": (4, 3), "d.weight": (4, 4)}))
    assert [(pair.a, pair.b) for pair in found.pairs] == [
        ("0.weight", "c.weight"),
        ("1.weight", "d.weight"),
    ]
    assert found.unpaired_parameters == (("0.bias", "1.bias"), ())


def test_buffers_of_one_side_are_left_out_and_named() -> None:
    found = match_tensors(tensors({"w": (2,), "attn.mask": (5, 5)}), tensors({"w": (2,)}))
    assert found.unpaired_buffers == (("attn.mask",), ())
    assert [pair.a for pair in found.pairs] == ["w"]


def test_a_table_of_one_side_begins_like_one_that_is_tied_and_a_vector_by_itself() -> None:
    first = tensors({"embedding.weight": (9, 4), "norm.weight": (4,)})
    arrays = {one.name: np.full(one.shape, 2.0) for one in first}
    table, vector = tensors({"head.weight": (9, 4), "norm.bias": (4,)})
    assert find_tied_value(table, first, arrays) is arrays["embedding.weight"]
    assert find_tied_value(vector, first, arrays) is None


def test_a_change_is_its_own_way_back() -> None:
    x = np.arange(6.0).reshape(2, 3)
    assert np.array_equal(
        apply_change(apply_change(x, "transpose", (3, 2)), "transpose", (2, 3)), x
    )
    assert apply_change(x, "reshape", (2, 1, 3)).shape == (2, 1, 3)
    assert find_change((2, 3), (3, 3)) is None
    assert canonical_name("a.gamma") == "a.weight"


def test_modules_follow_their_parameters() -> None:
    a = {"f": "Sequential", "f.0": "Linear", "f.1": "ReLU", "f.2": "Linear", "act": "GELU"}
    b = {"net": "SequentialCell", "net.0": "Dense", "net.1": "ReLU", "net.2": "Dense", "g": "GELU"}
    shapes: Shapes = {"0.weight": (2, 3), "2.weight": (4, 2)}
    found = match_tensors(
        tensors({f"f.{n}": s for n, s in shapes.items()}),
        tensors({f"net.{n}": s for n, s in shapes.items()}),
    )
    assert pair_modules(a, b, found) == {
        "f": "net",
        "f.0": "net.0",
        "f.1": "net.1",
        "f.2": "net.2",
        "act": "g",
    }


def test_a_module_with_a_fused_tensor_is_the_whole_that_has_its_pieces() -> None:
    fused = {"mix": "Attention", "mix.out": "Linear", "qkv": "Linear", "norm": "LayerNorm"}
    parts = {
        "own": "Mine",
        **{f"own.{n}": "Linear" for n in ("q", "k", "v", "project")},
        **{f"other.{n}": "Linear" for n in ("q", "k", "v")},
        "other": "Mine",
        "n": "LayerNorm",
    }
    names = {f"mix.w[{i}]": f"own.{n}.weight" for i, n in enumerate("qkv")}
    names |= {f"qkv.weight[{i}]": f"other.{n}.weight" for i, n in enumerate("qkv")}
    names |= {"mix.out.weight": "own.project.weight", "norm.weight": "n.weight"}
    found = Pairing(tuple(TensorPair(x, y, "order") for x, y in names.items()))
    # A fused layer alone computes neither a piece nor what is made of all three.
    wanted = {"mix": "own", "mix.out": "own.project", "norm": "n"}
    assert pair_modules(fused, parts, found) == wanted
    back = Pairing(tuple(TensorPair(y, x, "order") for x, y in names.items()))
    assert pair_modules(parts, fused, back) == {y: x for x, y in wanted.items()}
    # More parameters inside: it computes something else, too.
    names["norm.weight"] = "own.norm.weight"
    found = Pairing(tuple(TensorPair(x, y, "order") for x, y in names.items()))
    parts = parts | {"own.norm": "LayerNorm"}
    assert "mix" not in pair_modules(fused, parts, found)
