"""Which matrices are those of queries and keys, and which orders of their rows are tried."""

from __future__ import annotations

import numpy as np
import pytest

from dualml.parity.models.operations import Operation
from dualml.parity.models.orientation import (
    INPUT_ROWS,
    OUTPUT_ROWS,
    find_orientations,
    pair_by_orientation,
)
from dualml.parity.models.partners import Tensor
from dualml.parity.models.rotary import (
    interleaved_maps,
    interleaved_names,
    is_query_or_key,
    runs_before,
)
from dualml.parity.models.trace import Trace, array_key


@pytest.mark.parametrize(
    ("name", "right"),
    [
        ("layers.0.self_attn.q_proj.weight", True),
        ("layers.0.attention.wk.weight", True),
        ("attention.self.query.bias", True),
        ("attn.to_k.weight", True),
        ("h.0.attn.c_attn.weight[1]", True),
        ("h.0.attn.c_attn.weight[2]", False),
        ("layers.0.attention.wo.weight", False),
        ("layers.0.self_attn.v_proj.weight", False),
        ("blocks.0.mlp.fc1.weight", False),
    ],
)
def test_names_of_queries_and_keys(name: str, right: bool) -> None:
    assert is_query_or_key(name) is right


def make_side(names: list[str], call: str) -> Trace:
    tensors = [Tensor(name, (16, 12)) for name in names]
    calls = [Operation(0, call, (), {}, ((2, 2, 5, 8),))]
    return Trace("torch", {}, tensors, {}, operations=calls)


def test_both_orders_are_tried_for_all_queries_and_keys() -> None:
    a = make_side(["q_proj.weight", "k_proj.weight", "v_proj.weight"], "cos")
    b = make_side(["wq.weight", "wk.weight", "wv.weight"], "mul")
    asked = {f"{n}_proj.weight": f"w{n}.weight" for n in "qkv"}
    found = list(interleaved_maps(a, b, asked))
    words = ["interleave:2", "deinterleave:2"]
    assert found == [
        {"q_proj.weight": ["wq.weight", word], "k_proj.weight": ["wk.weight", word]}
        for word in words
    ]
    assert interleaved_names(found[0]) == ("q_proj.weight, k_proj.weight", "interleave:2")
    a.operations, a.tensors = make_side([], "relu").operations, a.tensors
    assert not list(interleaved_maps(a, b, asked))


def make_product(name: str, transposed: bool, framework: str) -> Trace:
    """Return a trace of a square layer with a bias, whose matrix is stored as (in, out) or not."""
    rng = np.random.default_rng(0)
    x, w = rng.normal(size=(2, 3, 4)), rng.normal(size=(4, 4))
    stored = (w.T if transposed else w).astype(np.float32)
    calls = [
        Operation(0, "relu", ("input:0",), {}, ((2, 3, 4),)),
        Operation(1, "linear", ("op:0", f"parameter:{name}"), {}, ((2, 3, 4),)),
    ]
    trace = Trace(framework, {}, [Tensor(name, (4, 4))], {}, operations=calls)
    trace.arrays = {
        array_key("operation", 1, "op:0"): x.astype(np.float32),
        array_key("operation", 1, "op:1"): (x @ w.T + 3).astype(np.float32),
        array_key("parameters", 0, name): stored,
    }
    return trace


def test_recorded_products_show_how_a_square_matrix_is_stored() -> None:
    a, b = make_product("fc.weight", False, "torch"), make_product("fc.w", True, "mindspore")
    assert find_orientations(a) == {"fc.weight": OUTPUT_ROWS}
    assert find_orientations(b) == {"fc.w": INPUT_ROWS}
    assert pair_by_orientation(a, b, {}) == {"fc.weight": ("fc.w", "transpose")}
    assert pair_by_orientation(a, b, {"fc.weight": ("fc.w", "transpose")}) == {}
    same = make_product("fc.w", False, "mindspore")
    assert pair_by_orientation(a, same, {}) == {}
    assert pair_by_orientation(a, same, {"fc.weight": ("fc.w", "transpose")}) == {
        "fc.weight": "fc.w"
    }


def test_what_comes_before_queries_and_keys_is_no_matter_of_their_rows() -> None:
    """The norm in front of the second block's attention lies behind the first block's."""
    order = ["norm", "blocks.0.q", "blocks.0.k", "blocks.1.norm", "blocks.1.q", "(output)"]
    made = Trace("torch", {}, [], {}, order=[order])
    both = ["blocks.0.q.weight", "blocks.0.k.weight"]
    assert runs_before(made, "norm", both)
    assert runs_before(made, "blocks.1.norm", ["blocks.1.q.weight"])
    assert not runs_before(made, "blocks.0.q", both)
    assert not runs_before(made, "blocks.1.norm", both)
    assert not runs_before(made, "unknown", both)
    assert not runs_before(made, "norm", ["unused.weight"])
    made.order = []
    assert not runs_before(made, "norm", both)
