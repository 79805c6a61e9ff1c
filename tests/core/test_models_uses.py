"""Partners by the order in which models use their parameters."""

from __future__ import annotations

from dualml.parity.models.guesses import listed
from dualml.parity.models.mapping import match, named
from dualml.parity.models.operations import Operation
from dualml.parity.models.partners import Tensor
from dualml.parity.models.trace import Trace
from dualml.parity.models.uses import by_use


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
    assert by_use(a, b, (ours, theirs)) == {"norm.weight": "ln.gamma", "mix": "r", "decay": "w"}


def test_what_one_side_uses_more_often_stays_without_a_partner() -> None:
    a = [Tensor("x", (4,)), Tensor("y", (4,))]
    ours, theirs = calls(("mul", "x"), ("mul", "y")), calls(("Mul", "z"))
    assert by_use(a, [Tensor("z", (4,))], (ours, theirs)) == {}


def test_guesses_go_before_the_order_of_the_lists_and_are_called_so() -> None:
    a = [Tensor("p", (4, 4)), Tensor("q", (4, 4))]
    b = [Tensor("1", (4, 4)), Tensor("2", (4, 4))]
    pairs = match(a, b, guesses={"p": "2", "q": "1"}).pairs
    assert [(one.a, one.b, one.how) for one in pairs] == [("p", "2", "order"), ("q", "1", "order")]


def test_names_of_one_side_that_all_fit_leave_no_choice() -> None:
    a = [Tensor("0.weight", (4, 4)), Tensor("1.weight", (4, 4)), Tensor("1.bias", (4,))]
    assert named(a, a[:2])
    assert not named(a, [Tensor("0.weight", (4, 4)), Tensor("2.weight", (4, 4))])
    assert not named(a, [])


def test_several_axes_in_one_fit() -> None:
    (pair,) = match([Tensor("bias", (2, 6))], [Tensor("bias", (12,))]).pairs
    assert (pair.how, pair.change) == ("name", "reshape")


def test_the_order_of_the_lists_is_tried_where_that_of_the_use_says_otherwise() -> None:
    ours = Trace("torch", {}, [Tensor("source", (4, 4)), Tensor("target", (4, 4))], {})
    theirs = Trace("mindspore", {}, [Tensor("s", (4, 4)), Tensor("d", (4, 4))], {})
    assert listed(ours, theirs, {}) == {}
    theirs.guesses = {"source": "d", "target": "s"}
    assert listed(ours, theirs, {}) == {"source": "s", "target": "d"}
    assert listed(ours, theirs, {"source": "d"}) == {}
    theirs.guesses = {"source": "s", "target": "d"}
    assert listed(ours, theirs, {}) == {}


def test_what_a_name_says_goes_before_the_order() -> None:
    a = [Tensor("bn.running_mean", (4,), False), Tensor("bn.running_var", (4,), False)]
    b = [Tensor("fixed_mean", (4,), False), Tensor("fixed_var", (4,), False)]
    ours = calls(("batch_norm", "bn.running_mean", "bn.running_var"))
    theirs = calls(("Add", "fixed_var"), ("Mul", "fixed_mean"))
    wanted = {"bn.running_mean": "fixed_mean", "bn.running_var": "fixed_var"}
    assert by_use(a, b, (ours, theirs)) == wanted


def test_what_is_left_of_a_module_is_no_module() -> None:
    a = [Tensor(f"value.{i}.weight", (4, n)) for i, n in enumerate((6, 3))]
    a.append(Tensor("policy.weight", (4, 6)))
    b = [Tensor("first.0.weight", (4, 6)), Tensor("v2.weight", (4, 3)), Tensor("v1.weight", (4, 6))]
    pairs = match(a, b, roles={"value.1.weight": "v2.weight"}).pairs
    assert {pair.a: pair.how for pair in pairs}["value.0.weight"] == "order"
