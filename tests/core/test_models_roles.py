"""Matching parameters by the operations that use them."""

from __future__ import annotations

from collections.abc import Sequence

from dualml.parity.models.graph_roles import build_graph, match_roles
from dualml.parity.models.mapping import match_tensors
from dualml.parity.models.operations import Operation
from dualml.parity.models.partners import Tensor


def calls(*rows: Sequence[str]) -> list[Operation]:
    """Return the name and inputs of each call."""
    return [
        Operation(i, name, tuple(given), {}, ((2, 4),)) for i, (name, *given) in enumerate(rows)
    ]


def make_tensors(*names: str) -> list[Tensor]:
    return [Tensor(name, (4, 4) if name.endswith("weight") else (4,)) for name in names]


def chain(*order: str) -> list[Operation]:
    """Return consecutive linear layers, each with a call for its product and one for its bias."""
    rows, last = [], "input:0"
    for name in order:
        rows.append(("matmul", last, f"parameter:{name}.weight"))
        rows.append(("add", f"op:{len(rows) - 1}", f"parameter:{name}.bias"))
        last = f"op:{len(rows) - 1}"
    return calls(*rows)


def test_a_chain_is_paired_in_the_order_of_its_use_not_of_its_list() -> None:
    a = make_tensors("x.weight", "x.bias", "y.weight", "y.bias", "z.weight", "z.bias")
    b = make_tensors("1.weight", "1.bias", "2.weight", "2.bias", "3.weight", "3.bias")
    found = match_roles(build_graph(chain("x", "y", "z"), a), build_graph(chain("3", "1", "2"), b))
    assert {k: v for k, v in found.items() if k.endswith("weight")} == {
        "x.weight": "3.weight",
        "y.weight": "1.weight",
        "z.weight": "2.weight",
    }
    assert [pair.how for pair in match_tensors(a, b, roles=found).pairs] == ["role"] * 6


def test_one_call_or_two_for_a_layer_are_the_same_graph() -> None:
    fused = calls(
        ("linear", "input:0", "parameter:x.weight", "parameter:x.bias"),
        ("linear", "op:0", "parameter:y.weight", "parameter:y.bias"),
    )
    a, b = (
        make_tensors("x.weight", "x.bias", "y.weight", "y.bias"),
        make_tensors("1.weight", "1.bias", "2.weight", "2.bias"),
    )
    found = match_roles(build_graph(fused, a), build_graph(chain("2", "1"), b))
    assert found["x.weight"] == "2.weight"


def test_what_is_alike_in_both_directions_has_no_partner_by_role() -> None:
    both = calls(
        ("linear", "input:0", "parameter:gate.weight"),
        ("linear", "input:0", "parameter:up.weight"),
        ("mul", "op:0", "op:1"),
        ("linear", "op:2", "parameter:down.weight"),
    )
    found = build_graph(both, make_tensors("gate.weight", "up.weight", "down.weight"))
    assert match_roles(found, found) == {"down.weight": "down.weight"}


def test_around_a_layer_that_one_side_lacks_the_rest_has_partners() -> None:
    names = [f"{i}" for i in range(8)]
    whole = make_tensors(*(f"{n}.{last}" for n in names for last in ("weight", "bias")))
    fewer = [n for n in names if n != "4"]
    less = [one for one in whole if not one.name.startswith("4.")]
    found = match_roles(build_graph(chain(*names), whole), build_graph(chain(*fewer), less))
    assert all(x == y for x, y in found.items())
    assert found.keys() >= {f"{n}.weight" for n in ("0", "1", "2", "5", "6", "7")}


def test_what_has_a_partner_tells_its_neighbours_apart() -> None:
    names = [f"{i}" for i in range(30)]
    a = make_tensors(*(f"{n}.{last}" for n in names for last in ("weight", "bias")))
    b = [one for one in a if one.name != "0.bias"]  # nothing from here on is alike from the front
    without = [one for one in chain(*names) if one.number != 1]
    moved = [
        Operation(
            o.number, o.name, tuple("op:0" if i == "op:1" else i for i in o.inputs), {}, o.outputs
        )
        for o in without
    ]
    found = match_roles(build_graph(chain(*names), a), build_graph(moved, b))
    assert all(x == y for x, y in found.items())
    assert found.keys() >= {f"{n}.weight" for n in names[2:]}
