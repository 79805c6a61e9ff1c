"""Mutations of a model's operations: which are tried, in which scopes, and how they are
described."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from dualml.common.words import section_messages
from dualml.parity.causes.assessment import FITTED, is_fitted
from dualml.parity.causes.element_orders import element_orders
from dualml.parity.causes.gradients import edge_mutations
from dualml.parity.causes.mutation import Mutation, MutationContext
from dualml.parity.causes.mutations import candidate_mutations
from dualml.parity.causes.ranking import drop_undetermined
from dualml.parity.causes.ratios import common_ratio, update_ratio
from dualml.parity.causes.scopes import widen_scopes
from dualml.parity.causes.settings import joint_settings, setting_values
from dualml.parity.models.mutation_sentences import describe_mutation
from dualml.parity.models.operations import Operation, SourceLocation
from dualml.parity.models.sentences import describe_causes, describe_relation
from dualml.parity.models.trace import Trace, array_key

PLACES = [SourceLocation("/net.py", line, "f(x)") for line in (3, 9)]


def operation(number: int, name: str, inputs: tuple[str, ...], line: int = 0, **given: Any) -> Any:
    return Operation(
        number, name, inputs, given, ((2, 6, 4),), PLACES[line], f"block.{number}.norm"
    )


NORM = operation(0, "layer_norm", ("input:0", "parameter:w"), eps=1e-5)
AROUND = MutationContext(
    (1e-7,),
    ("parameter:v",),
    {"input:0": (2, 6, 4), "parameter:w": (4,), "parameter:v": (4,), "op:7": (2, 6, 4)},
    {0: 1},
    (4, 6),
)


def all_mutations(one: Operation) -> list[Mutation]:
    return list(candidate_mutations(one, [AROUND.shapes.get(n, ()) for n in one.inputs], AROUND))


def test_settings_of_the_other_side_come_first() -> None:
    assert setting_values("eps", 1e-5, NORM, AROUND)[0] == 1e-7
    assert 1e-5 not in setting_values("eps", 1e-5, NORM, AROUND)
    assert setting_values("training", True, NORM, AROUND) == [False]
    assert [0, 2, 1] in setting_values("dims", [0, 1, 2], NORM, AROUND)
    assert "ij,kj->ki" in setting_values("equation", "ij,kj->ik", NORM, AROUND)
    assert -1 in setting_values("dim", 1, NORM, AROUND)


def test_every_sort_of_mistake_is_tried_on_one_operation() -> None:
    seen = {(one.kind, one.action) for one in all_mutations(NORM)}
    assert {
        ("attribute", "set"),
        ("missing", "drop"),
        ("operand", "operand"),
        ("order", "swap"),
        ("extra", "output"),
        ("layout", "input"),
        ("constant", "output"),
        ("dtype", "input"),
        ("missing", "input"),
        ("operand", "parameters"),
        ("attribute", "form"),
    } <= seen


def test_an_operand_that_skips_a_call_is_a_call_left_out() -> None:
    around = MutationContext(
        (), (), {"op:1": (2,), "op:2": (2,)}, {}, (), {"op:2": ("op:1",)}, {"op:2": [[3]]}
    )
    one = Operation(3, "add", ("op:2",), {}, ((2,),))
    kinds = {
        a.value: a.kind for a in candidate_mutations(one, [(2,)], around) if a.action == "operand"
    }
    assert kinds["op:1"] == "missing"


def test_a_kernel_that_trusts_its_settings_is_not_told_of_parameters_that_are_not_there() -> None:
    lstm = Operation(0, "lstm", ("input:0",), {"num_layers": 1, "train": True}, ((2, 6, 4),))
    assert not [a for a in all_mutations(lstm) if a.argument == "num_layers"]


def test_scopes_are_the_call_its_line_and_all_that_is_like_it() -> None:
    calls = [operation(i, "layer_norm", ("input:0",), i // 2, eps=1e-5) for i in range(3)]
    one = Mutation("attribute", "set", (0,), "layer_norm", "eps", 1e-7, 1e-5)
    assert [a.sites for a in widen_scopes(one, calls)] == [(0,), (0, 1), (0, 1, 2)]
    once = Mutation("gradient", "detach", (0, 1), "layer_norm", 0)
    assert widen_scopes(once, calls) == [once]


def test_edges_are_those_through_which_all_wrong_gradients_come() -> None:
    calls = [operation(0, "a", ("parameter:u",)), operation(1, "b", ("op:0", "parameter:v"))]
    before = {0: {"parameter:u"}, 1: {"op:0", "parameter:u", "parameter:v"}}
    found = [(one.sites, one.argument) for one in edge_mutations(calls, before, {"u"})]
    assert found[0] in (((0,), 0), ((1,), 0))
    assert ((1,), 1) not in found


def test_one_number_between_two_arrays() -> None:
    x = np.arange(4.0)
    assert common_ratio(x, 0.5 * x) == pytest.approx(0.5)
    assert common_ratio(x, x**2) is None
    assert common_ratio(x, np.zeros(4)) == 0


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_every_alteration_has_words(lang: Any) -> None:
    rows = [vars(one) for one in all_mutations(NORM)]
    rows += [
        vars(Mutation("optimizer", "optimizer", (), "", word, 2.0, None))
        for word in (
            "beta1",
            "form:plain",
            "gradient:norm",
            "skip",
            "hold",
            "decay:coupled",
            "lr_factor",
            "lr_schedule",
            "twice",
        )
    ]
    rows += [
        vars(Mutation("layout", action, (0,), "cat", 0, (1, 0), "::"))
        for action in (
            "index",
            "reorder",
            "inputs",
            "everywhere",
            "borrow",
            "freeze",
            "attach",
            "detach",
            "exchange",
            "twice",
            "pad",
            "function",
            "instead",
            "rename",
            "lower",
            "omit",
            "trade",
            "cut",
            "indices",
            "numbers",
            "share",
            "untie",
            "train",
            "swap",
        )
    ]
    rows += [
        vars(Mutation("order", f"line:{w}", (0,), "add", 0, (1, 0), "::", "opt.py:12"))
        for w in ("set", "swap", "drop")
    ]
    rows += [
        vars(Mutation("gradient", "detach", (0,), "cat", "")),
        vars(Mutation("attribute", "settings", (0,), "conv1d", "", (("padding", 2),), (1,))),
    ]
    rows += [
        vars(Mutation("constant", "input", (0,), "div", 1, (word, 2.0)))
        for word in ("scale", "fill", "shift")
    ]
    for row in rows:
        assert "{" not in describe_mutation(lang, row)
    setting = {"name": "axis", "left": 0, "right": 1}
    for phrase in (k for k in section_messages(lang, "models") if k.startswith("evidence.")):
        name = phrase.removeprefix("evidence.").removesuffix("_scattered")
        row = {
            "key": name,
            "value": 1.0,
            "axis": None if "scattered" in phrase else 0,
            "by": 1,
            "share": 0.1,
            "indices": [1],
            **setting,
            "rows": [setting],
        }
        assert describe_relation(lang, row)


def test_without_a_cause_nothing_is_named() -> None:
    found = {"causes": [], "equal": False, "tried": [10, 2], "evidence": [{"key": "permuted"}]}
    said = " ".join(describe_causes("en", found, ("torch", "mindspore"), 1))
    assert said == (
        "No cause was found: 12 changes of torch were tried, and none makes it compute what "
        "mindspore does. Both hold the same numbers in another order."
    )


def test_an_operand_is_left_out_only_where_nothing_else_takes_it() -> None:
    one = operation(8, "linear", ("op:7",))
    shapes = {"op:6": (2, 6, 4), "op:7": (2, 6, 4), "op:2": (2, 3, 6, 4)}

    def kinds(takers: list[list[int]], before: tuple[str, ...]) -> set[tuple[str, str, int]]:
        around = MutationContext((), (), shapes, {}, (), {"op:7": before}, {"op:7": takers})
        return {
            (c.kind, c.action, len(c.sites))
            for c in candidate_mutations(one, [(2, 6, 4)], around)
            if c.value == "op:6"
        }

    assert kinds([[8]], ("op:6",)) == {("missing", "operand", 1)}
    assert kinds([[8], [9]], ("op:6",)) == {("operand", "operand", 1), ("missing", "rename", 2)}
    assert kinds([[5], [8], [9]], ("op:6",)) == {
        ("operand", "operand", 1),
        ("operand", "rename", 2),
    }
    assert kinds([[8]], ()) == {("operand", "operand", 1)}  # it was made of a constant


def test_parts_numbers_and_precision_are_tried() -> None:
    shapes = {"op:1": (2, 6), "op:2": (2, 6, 5), "op:3": (2, 6)}
    around = MutationContext((5.0, 3e-2), (), shapes, {}, ())
    values = [
        (c.kind, c.action, c.argument, c.value)
        for name in ("div", "embedding", "normalize")
        for c in candidate_mutations(operation(4, name, ("op:1", "op:3")), [(2, 6), (2, 6)], around)
    ]
    for wanted in (
        ("operand", "operand", 0, ("op:2", 2, -1)),
        ("constant", "input", 1, ("fill", 5.0)),
        ("constant", "input", 0, ("shift", 1)),
        ("constant", "form", "eps_outside", 3e-2),
        ("dtype", "lower", "", "float16"),
    ):
        assert wanted in values


@pytest.mark.parametrize("name", ["conv2d", "conv_transpose1d", "max_pool2d", "avg_pool2d"])
def test_uneven_padding_is_tried(name: str) -> None:
    one = replace(operation(4, name, ("op:1",)), attributes={"padding": 1, "stride": 2})
    around = MutationContext((), (), {"op:1": (2, 3, 8, 8)}, {}, ())
    ways = [c.value for c in candidate_mutations(one, [(2, 3, 8, 8)], around) if c.action == "pad"]
    modes = ["reflect", "replicate", "circular"] if name == "conv2d" else []
    assert ways == ["same", "same_before", "behind", "before", *modes]


@pytest.mark.parametrize(("padding", "tried"), [([0, 0], False), ([2, 2], True)])
def test_dilation_and_padding_change_together_where_there_is_padding(
    padding: list[int], tried: bool
) -> None:
    found = list(joint_settings("conv2d", {"dilation": [2, 2], "padding": padding}))
    assert bool(found) is tried


@pytest.mark.parametrize(("rows", "parts"), [(1, []), (2, [2]), (8, [2, 4]), (9, [])])
def test_a_loss_is_divided_into_parts_that_have_rows(rows: int, parts: list[int]) -> None:
    one = operation(4, "cross_entropy", ("op:1", "input:1"))
    around = MutationContext((), (), {}, {}, ())
    found = candidate_mutations(one, [(rows, 5), (rows,)], around)
    assert [change.value for change in found if change.action == "mean_of_parts"] == parts


@pytest.mark.parametrize(
    ("values", "left"), [((0.005, 0.01, 0.1), 0), ((0.01,), 1), ((0.0, 0.01, 0.1), 3)]
)
def test_a_number_in_the_place_of_nought_is_no_cause_where_any_does(
    values: tuple[float, ...], left: int
) -> None:
    changes = [
        Mutation("optimizer", "optimizer", (), "", "weight_decay", value, ("fc.bias",))
        for value in values
    ]
    other = Mutation("attribute", "set", (1,), "conv2d", "padding", [1, 1], [0, 0])
    runs: list[Any] = [SimpleNamespace(changes=(change,)) for change in (*changes, other)]
    assert len(drop_undetermined(runs)) == left + 1


def test_heads_and_their_queries_keys_values_change_places() -> None:
    assert ("regroup", 0, 4, 3) in list(element_orders((24,)))
    assert ("regroup", 0, 3, 4) in list(element_orders((24,)))


def test_the_rate_of_most_moves_is_the_rate() -> None:
    rng = np.random.default_rng(0)
    start, move = rng.standard_normal((2, 40))
    there = 0.25 * move
    there[:4] = rng.standard_normal(4)  # steps of gradients that are nothing but rounding
    a, b = Trace("torch", {}, [], {}), Trace("mindspore", {}, [], {})
    for trace, moved in ((a, move), (b, there)):
        trace.arrays = {
            array_key("parameters", 0, "w"): start,
            array_key("update", 1, "w"): start + moved,
        }
        trace.order = [["w"]]
    c = update_ratio(a, b, 1, {"parameter:w": "parameter:w"})
    assert c is not None
    assert abs(c - 0.25) < 1e-9
    b.arrays[array_key("update", 1, "w")] = start + rng.standard_normal(40)
    assert update_ratio(a, b, 1, {"parameter:w": "parameter:w"}) is None


def test_one_fitted_number_has_to_explain_everything() -> None:
    assert is_fitted(Mutation("constant", "output", (3,), "add", "", ("scale", 0.1), FITTED))
    assert is_fitted(Mutation("optimizer", "optimizer", (), "", "lr_factor", 0.1))
    assert not is_fitted(Mutation("constant", "output", (3,), "add", "", ("scale", 0.1)))


MEMORY = """
import numpy as np, psutil
from dualml.parity.causes.explainer import limit_memory
free = psutil.virtual_memory().available
limit_memory()
np.empty(2**20, np.uint8).fill(1)
try:
    np.empty(free * 3 // 4, np.uint8)  # never touched
except MemoryError:
    print("refused")
"""


@pytest.mark.skipif(sys.platform != "linux", reason="the limit is Linux's")
def test_an_alteration_may_not_ask_for_more_than_half_of_the_memory() -> None:
    done = subprocess.run(
        [sys.executable, "-c", MEMORY], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout == "refused\n"
