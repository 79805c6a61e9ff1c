"""Matching parameters by the order in which models use them."""

from __future__ import annotations

from dualml.parity.models.heuristics import pair_by_listing, pair_transposed
from dualml.parity.models.mapping import is_paired_by_names, match_tensors
from dualml.parity.models.operations import Operation
from dualml.parity.models.partners import Tensor
from dualml.parity.models.trace import Trace
from dualml.parity.models.usage import pair_by_use


def calls(*rows: tuple[str, ...]) -> list[Operation]:
    return [
        Operation(i, name, tuple(f"parameter:{one}" for one in given), {}, ((2, 4),))
        for i, (name, *given) in enumerate(rows)
    ]


def test_the_first_that_is_used_goes_with_the_first() -> None:
    a = [Tensor("mix", (1, 4)), Tensor("norm.weight", (4,)), Tensor("decay", (4,))]
    b = [Tensor("w", (4,)), Tensor("ln.gamma", (4,)), Tensor("r", (4,))]
    ours = calls(("layer_norm", "norm.weight"), ("mul", "mix"), ("exp", "decay"))
    theirs = calls(("LayerNorm", "ln.gamma"), ("Mul", "r"), ("Exp", "w"))
    assert pair_by_use(a, b, (ours, theirs)) == {
        "norm.weight": "ln.gamma",
        "mix": "r",
        "decay": "w",
    }


def test_what_one_side_uses_more_often_stays_without_a_partner() -> None:
    a = [Tensor("x", (4,)), Tensor("y", (4,))]
    ours, theirs = calls(("mul", "x"), ("mul", "y")), calls(("Mul", "z"))
    assert pair_by_use(a, [Tensor("z", (4,))], (ours, theirs)) == {}


def test_guesses_go_before_the_order_of_the_lists_and_are_called_so() -> None:
    a = [Tensor("p", (4, 4)), Tensor("q", (4, 4))]
    b = [Tensor("1", (4, 4)), Tensor("2", (4, 4))]
    pairs = match_tensors(a, b, guesses={"p": "2", "q": "1"}).pairs
    assert [(one.a, one.b, one.how) for one in pairs] == [("p", "2", "order"), ("q", "1", "order")]


def test_names_of_one_side_that_all_fit_leave_no_choice() -> None:
    a = [Tensor("0.weight", (4, 4)), Tensor("1.weight", (4, 4)), Tensor("1.bias", (4,))]
    assert is_paired_by_names(a, a[:2])
    assert not is_paired_by_names(a, [Tensor("0.weight", (4, 4)), Tensor("2.weight", (4, 4))])
    assert not is_paired_by_names(a, [])


def test_several_axes_in_one_fit() -> None:
    (pair,) = match_tensors([Tensor("bias", (2, 6))], [Tensor("bias", (12,))]).pairs
    assert (pair.how, pair.change) == ("name", "reshape")


def test_the_order_of_the_lists_is_tried_where_that_of_the_use_says_otherwise() -> None:
    ours = Trace("torch", {}, [Tensor("source", (4, 4)), Tensor("target", (4, 4))], {})
    theirs = Trace("mindspore", {}, [Tensor("s", (4, 4)), Tensor("d", (4, 4))], {})
    assert pair_by_listing(ours, theirs, {}) == {}
    theirs.guesses = {"source": "d", "target": "s"}
    assert pair_by_listing(ours, theirs, {}) == {"source": "s", "target": "d"}
    assert pair_by_listing(ours, theirs, {"source": "d"}) == {}
    theirs.guesses = {"source": "s", "target": "d"}
    assert pair_by_listing(ours, theirs, {}) == {}


def test_what_a_name_says_goes_before_the_order() -> None:
    a = [Tensor("bn.running_mean", (4,), False), Tensor("bn.running_var", (4,), False)]
    b = [Tensor("fixed_mean", (4,), False), Tensor("fixed_var", (4,), False)]
    ours = calls(("batch_norm", "bn.running_mean", "bn.running_var"))
    theirs = calls(("Add", "fixed_var"), ("Mul", "fixed_mean"))
    wanted = {"bn.running_mean": "fixed_mean", "bn.running_var": "fixed_var"}
    assert pair_by_use(a, b, (ours, theirs)) == wanted


def test_what_is_left_of_a_module_is_no_module() -> None:
    a = [Tensor(f"value.{i}.weight", (4, n)) for i, n in enumerate((6, 3))]
    a.append(Tensor("policy.weight", (4, 6)))
    b = [Tensor("first.0.weight", (4, 6)), Tensor("v2.weight", (4, 3)), Tensor("v1.weight", (4, 6))]
    pairs = match_tensors(a, b, roles={"value.1.weight": "v2.weight"}).pairs
    assert {pair.a: pair.how for pair in pairs}["value.0.weight"] == "order"


def test_a_word_of_both_sides_own_goes_before_the_order() -> None:
    a = [Tensor("A_log", (6, 4)), Tensor("x_proj", (4, 6))]
    b = [Tensor("w_b", (4, 6)), Tensor("a_log", (6, 4))]
    both = calls(("exp", "A_log"), ("linear", "x_proj")), calls(("MatMul", "w_b"), ("Exp", "a_log"))
    assert pair_by_use(a, b, both) == {"A_log": "a_log", "x_proj": "w_b"}


def test_pieces_of_one_tensor_have_the_order_of_the_lists() -> None:
    a = [Tensor("w[0]", (4, 4)), Tensor("w[1]", (4, 4))]
    b = [Tensor("x", (4, 4)), Tensor("z", (4, 4))]
    both = calls(("linear", "w")), calls(("MatMul", "z"), ("MatMul", "x"))
    assert pair_by_use(a, b, both) == {"w[0]": "x", "w[1]": "z"}


def stored(square: str) -> tuple[Trace, Trace]:
    ours = [Tensor("up", (8, 4)), Tensor("mix", (4, 4)), Tensor("table", (4, 4))]
    theirs = [Tensor("wide", (4, 8)), Tensor(square, (4, 4)), Tensor("rows", (4, 4))]
    a, b = (Trace("x", {}, tensors, {}) for tensors in (ours, theirs))
    a.operations = calls(("linear", "up"), ("linear", "mix"), ("embedding", "table"))
    b.guesses = {"up": "wide", "mix": square, "table": "rows"}
    return a, b


def test_square_matrices_may_be_stored_like_the_others() -> None:
    a, b = stored("other")
    assert pair_transposed(a, b, {}) == {"mix": ("other", "transpose")}  # no table
    assert pair_transposed(*stored("other"), {"mix": ("other", "transpose")}) == {}


def test_a_square_matrix_under_the_others_last_name_is_stored_like_them() -> None:
    ours = [Tensor("up.weight", (8, 4)), Tensor("mix.weight", (4, 4))]
    theirs = [Tensor("wide.w", (4, 8)), Tensor("other.w", (4, 4))]
    pairs = match_tensors(
        ours, theirs, guesses={"up.weight": "wide.w", "mix.weight": "other.w"}
    ).pairs
    assert [one.change for one in pairs] == ["transpose", "transpose"]


def test_pieces_beside_a_whole_tensor_of_their_shape() -> None:
    """The port lists its output projection before queries, keys and values, but uses it last."""
    a = [Tensor(f"attn[{i}]", (4, 4)) for i in range(3)] + [Tensor("proj", (4, 4))]
    b = [Tensor(name, (4, 4)) for name in ("out", "q", "k", "v")]
    both = (
        calls(("addmm", "attn"), ("addmm", "proj")),
        calls(("MatMul", "k"), ("MatMul", "q"), ("MatMul", "v"), ("MatMul", "out")),
    )
    expected = {"attn[0]": "q", "attn[1]": "k", "attn[2]": "v", "proj": "out"}
    assert pair_by_use(a, b, both) == expected
