"""A layout that the user names: its price, the rules that it breaks, pins, and faster ones."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import numpy as np
import pytest
from test_planner_search import make_request

from dualml.common.errors import UserError
from dualml.planning.planner.alternatives import MESH, fastest_overall, nearest_faster
from dualml.planning.planner.axes import complete_axes, parse_axes
from dualml.planning.planner.bottleneck import (
    LARGE_BUBBLE,
    binding_bound,
    find_bubble_remedies,
    group_shares,
    message_parts,
)
from dualml.planning.planner.layouts import Layouts
from dualml.planning.planner.priced_layouts import price_layouts
from dualml.planning.planner.search import search_layouts
from dualml.planning.planner.shape import Shape
from dualml.planning.planner.utilisation import model_flops

TODAY: dict[str, Any] = {
    "devices": None, "attention": None, "overlap": None, "interleave": None,
}  # fmt: skip
PARTS = {
    "products": 60.0, "traffic": 20.0, "recompute": 0.0, "launches": 0.0, "tensor": 0.05,
    "pipeline": 0.05,
    "bubble": 19.0, "replicas": 0.0, "update": 0.9,
}  # fmt: skip


def make_plan(model: str, **options: Any) -> Any:
    return search_layouts(make_request(model, **{**TODAY, **options}))


def test_axes_are_read() -> None:
    given = parse_axes(" dp=8, pp=12,tp=4 ,b=2,v=3,sp=yes,recompute=full,zero=0", "--layout")
    assert given == {
        "dp": 8, "pp": 12, "tp": 4, "micro": 2, "chunks": 3, "sp": True, "recompute": "full",
        "zero": 0,
    }  # fmt: skip
    assert complete_axes({"tp": 4, "pp": 2}, 64)["dp"] == 8
    assert complete_axes({"tp": 4}, None)["dp"] == 1


@pytest.mark.parametrize(
    ("layout", "options", "reason"),
    [
        ("tpp=4", {}, "unknown axis 'tpp'; did you mean 'tp'?"),
        ("tp=4,tp=8", {}, "names tp twice"),
        ("tp", {}, "'tp' has no value"),
        (",", {}, "names no axis"),
        ("tp=0", {}, "tp is a number from 1"),
        ("tp=²", {}, "tp is a number from 1"),
        (f"tp={'9' * 5000}", {}, "tp is a number from 1"),
        ("zero=4", {}, "zero is a number from 0 to 3"),
        ("sp=2,tp=2", {}, "sp is 0 or 1"),
        ("recompute=half", {}, "recompute is none, selective, full, operations"),
        ("dp=8,pp=12,tp=4", {"devices": 1024}, "dp 8 · pp 12 · tp 4 · cp 1 = 384"),
        ("pp=12,tp=4", {"devices": 1024}, "48 does not divide 1,024 devices"),
        ("tp=5", {}, "tp 5 does not divide 96 attention heads; tp may be 1, 2, 3"),
        ("cp=3", {}, "2 · 3 = 6 does not divide the sequence of 2,048 tokens"),
        ("pp=97", {}, "pp 97 stages need as many layers, and the model has 96"),
        ("pp=5,v=2", {}, "pp 5 · chunks 2 = 10 does not divide 96 layers, nor"),
        ("dp=2,v=2", {}, "chunks 2 needs a pipeline, but pp is 1"),
        ("pp=8,v=2", {"batch": 12}, "multiples of pp 8, and there are 12"),
        ("dp=7,micro=3", {"batch": 100}, "dp 7 · micro 3 = 21 does not divide a batch of 100"),
        ("dp=7,micro=3", {"batch": 100}, "choose --batch 84 or 105"),
        ("sp=1", {}, "but tp is 1"),
        ("zero=2", {}, "of which there is 1"),
        ("dp=8,zero=1,replicate=3", {}, "replicate 3 does not divide dp · cp = 8"),
        ("dp=8,replicate=2", {}, "but zero is 0"),
        ("dp=8,ep=2", {}, "gpt3-175b has none"),
        ("tp=5,pp=97", {}, "attention heads; tp may be 1"),
        ("tp=8", {"pin": "zero=1"}, "take one of them"),
    ],
)
def test_a_layout_that_cannot_be_says_which_rule(
    layout: str, options: dict[str, Any], reason: str
) -> None:
    with pytest.raises(UserError) as error:
        make_plan("gpt3-175b", layout=layout, **options)
    assert reason in str(error.value)


def test_every_broken_rule_is_said() -> None:
    with pytest.raises(UserError) as error:
        make_plan("gpt3-175b", layout="tp=5,pp=97")
    assert "96 attention heads" in str(error.value)
    assert "pp 97 stages" in str(error.value)


def test_what_the_search_finds_breaks_no_rule() -> None:
    """The rules of one layout are those of the search: the layouts of a search can be named."""
    found = make_plan("llama3-8b", devices=48, batch=96, tensor=16, context=2)
    for row in np.linspace(0, len(found.layouts) - 1, 12).astype(int):
        of = found.layouts.describe(int(row))
        text = ",".join(
            f"{key}={int(value) if isinstance(value, bool) else value}"
            for key, value in of.items()
            if key not in ("batch", "micro_batches", "etp")
        )
        named = make_plan("llama3-8b", layout=text, batch=96)
        assert named.update_seconds[named.layout_row] == found.update_seconds[row]
        assert named.peak_memory[named.layout_row] == found.peak_memory[row]


def test_a_named_layout_is_priced_though_it_does_not_fit() -> None:
    found = make_plan("gpt3-175b", layout="dp=8,pp=12,tp=4,micro=2", memory="40GB")
    row = found.answer_row
    assert row == found.layout_row
    assert not found.fits[row]
    told = found.describe(3)
    assert told["layout"]["seconds"] == found.update_seconds[row]
    assert (told["layout"]["dp"], told["layout"]["micro"]) == (8, 2)
    alone = price_layouts(
        found.request, Layouts.from_axes(found.request.batch, dp=8, pp=12, tp=4, micro=2)
    )
    assert alone.update_seconds[0] == found.update_seconds[row]
    x = found.layouts
    same = np.logical_and.reduce([getattr(x, f.name) == getattr(x, f.name)[row] for f in fields(x)])
    assert same.sum() == 1  # it stands in the table once


def test_a_named_layout_where_nothing_fits() -> None:
    found = make_plan("gpt3-175b", layout="tp=8", memory="1GB")
    assert not len(found.ranked_rows)
    assert found.best_row == found.layout_row
    assert found.describe(3)["best"]["fits"] is False


@pytest.mark.parametrize(
    ("model", "layout", "options"),
    [
        ("gpt3-175b", "dp=8,pp=12,tp=8,zero=1,recompute=full", {}),
        ("gpt3-13b", "dp=16,tp=4", {"memory": "200GB"}),
        ("llama3-70b", "dp=4,pp=8,tp=4,micro=2", {"device": "h100"}),
    ],
)
def test_what_would_be_faster(model: str, layout: str, options: dict[str, Any]) -> None:
    found = make_plan(model, layout=layout, **options)
    row = found.answer_row
    near = nearest_faster(found, row, 99)
    assert near
    for each in near:
        assert found.fits[each.row]
        if found.fits[row]:
            assert found.update_seconds[each.row] < found.update_seconds[row]
        assert 1 - each.saved == pytest.approx(
            found.update_seconds[each.row] / found.update_seconds[row]
        )
        moved = [axis for axis in each.changes if axis in MESH]
        others = [axis for axis in each.changes if axis not in (*MESH, "sp", "zero")]
        assert (len(moved), len(others)) in {(2, 0), (0, 1), (0, 0)}
        before, after = (found.seconds.describe(k)[each.part] for k in (row, each.row))
        assert each.part_saved == pytest.approx((before - after) / found.update_seconds[row])
        assert all(
            before - after >= old - new - 1e-12
            for old, new in zip(
                found.seconds.describe(row).values(),
                found.seconds.describe(each.row).values(),
                strict=True,
            )
        )
    best = fastest_overall(found, row)
    assert best is not None
    assert best.row == found.ranked_rows[0]


def test_the_best_layout_has_nothing_faster() -> None:
    found = make_plan("gpt3-13b", devices=16)
    assert nearest_faster(found, found.best_row) == []
    assert fastest_overall(found, found.best_row) is None


def test_a_layout_that_does_not_fit_is_shown_the_fastest_that_does() -> None:
    found = make_plan("gpt3-13b", devices=16)
    best = found.best_row
    faster = ~found.fits & (found.update_seconds < found.update_seconds[best])
    alternative = fastest_overall(found, int(np.flatnonzero(faster)[0]))
    assert alternative is not None
    assert alternative.row == best
    assert alternative.saved < 0


@pytest.mark.parametrize(
    ("pin", "expected"),
    [
        ("tp=8,zero=1", {"tp": 8, "zero": 1}),
        ("tp=16", {"tp": 16}),
        ("cp=2", {"cp": 2}),
        ("sp=0,tp=4", {"sp": False, "tp": 4}),
        ("v=8,pp=4", {"chunks": 8, "pp": 4}),
        ("recompute=selective", {"recompute": "selective"}),
        ("replicate=2,zero=3", {"replicate": 2, "zero": 3}),
        ("reshard=0,zero=3", {"reshard": False, "zero": 3}),
        ("micro=2,dp=64", {"micro": 2, "dp": 64}),
    ],
)
def test_pins(pin: str, expected: dict[str, Any]) -> None:
    found = make_plan("gpt3-175b", devices=1024, pin=pin)
    for row in (0, len(found.layouts) // 2, len(found.layouts) - 1):
        of = found.layouts.describe(row)
        assert {axis: of[axis] for axis in expected} == expected
    free = make_plan("gpt3-175b", devices=1024, tensor=16, context=2, interleave=8)
    assert found.update_seconds.min() >= 0.99 * free.update_seconds.min() or "reshard" in expected


@pytest.mark.parametrize(
    ("pin", "reason"),
    [
        ("tp=3", "--pin tp=3: no layout of 1,024 devices and a batch of 2,048 has it; tp may be 1"),
        ("micro=7", "micro may be 1, 2, 4"),
        ("dp=512,tp=8", "beside the other pins"),
        ("ep=2", "ep may be 1"),
    ],
)
def test_pins_that_nothing_has(pin: str, reason: str) -> None:
    with pytest.raises(UserError) as error:
        make_plan("gpt3-175b", devices=1024, pin=pin)
    assert reason in str(error.value)


def test_what_binds_is_the_largest_part_of_its_own_time() -> None:
    """The limit agrees with the breakdown: 0.1 % of messages are never called the limit."""
    shares = group_shares(PARTS)
    assert shares == {
        "work": pytest.approx(0.809), "bubble": pytest.approx(0.19), "links": pytest.approx(0.001),
    }  # fmt: skip
    assert message_parts(PARTS) == ("tensor", "pipeline", "replicas")
    assert binding_bound(PARTS, 0.0) == "bubble"
    assert binding_bound(PARTS, 0.3) == "memory"
    assert binding_bound({**PARTS, "recompute": 30.0}, 0.0) == "bubble"
    assert binding_bound({**PARTS, "recompute": 30.0}, None) == "recompute"
    assert binding_bound({**PARTS, "launches": 30.0}, 0.0) == "launches"
    calm = {**PARTS, "bubble": 0.0}
    assert binding_bound(calm, 0.0) == "products"
    assert binding_bound({**calm, "traffic": 90.0}, 0.0) == "traffic"
    assert binding_bound({**calm, "replicas": 5.0}, 0.0) == "links"


@pytest.mark.parametrize(
    ("model", "options"),
    [
        ("gpt3-175b", {"devices": 1024, "batch": 64}),
        ("gpt3-175b", {"devices": 1024}),
        ("gpt2", {"devices": 1}),
        ("gpt3-13b", {"devices": 64, "link": "1Gbit", "node": 1}),
    ],
)
def test_the_limit_that_is_named_costs_what_the_breakdown_says(
    model: str, options: dict[str, Any]
) -> None:
    found = make_plan(model, **options)
    parts = found.seconds.describe(found.best_row)
    total = sum(parts.values())
    assert sum(found.shares.values()) == pytest.approx(1)
    assert found.shares["bubble"] == pytest.approx(parts["bubble"] / total)
    assert found.shares["links"] == pytest.approx(
        sum(parts[p] for p in message_parts(parts)) / total
    )
    if found.binding in ("bubble", "links"):
        assert found.shares[found.binding] >= 0.05


def test_a_large_bubble_has_remedies() -> None:
    found = make_plan("gpt3-175b", layout="dp=4,pp=16,tp=8,zero=1,recompute=full", batch=128)
    row = found.answer_row
    parts = found.seconds.describe(row)
    assert group_shares(parts)["bubble"] > LARGE_BUBBLE
    remedies = {remedy.kind: remedy for remedy in find_bubble_remedies(found, row)}
    assert set(remedies) == {"chunks", "batch"}
    axes = {"dp": 4, "pp": 16, "tp": 8, "zero": 1, "recompute": "full"}
    woven = price_layouts(
        found.request, Layouts.from_axes(128, **axes, chunks=remedies["chunks"].value)
    )
    assert remedies["chunks"].saved == pytest.approx(
        1 - woven.update_seconds[0] / found.update_seconds[row]
    )
    assert remedies["batch"].value == 256
    for remedy in remedies.values():
        assert remedy.bubble < group_shares(parts)["bubble"]
        assert 0 < remedy.saved < 1
    small = make_plan("gpt3-175b", layout="dp=4,pp=2,tp=8,zero=1,recompute=full", batch=1024)
    assert find_bubble_remedies(small, small.answer_row) == []


def test_mfu_is_that_of_the_palm_paper() -> None:
    """PaLM 540 B trained 238.3 K tokens/s on 6,144 TPU v4 of 275 teraFLOP/s: 45.7 % without
    attention, 46.2 % with it (Chowdhery et al. 2022, appendix B)."""
    shape = Shape(
        "palm", 118, 18432, 48, 1, 4 * 18432, 256_000, 2048,
        gated=True, tied=True, head_width=256, biased=False, learned_positions=False, dropout=False,
    )  # fmt: skip
    assert shape.parameters == pytest.approx(540.35e9, rel=1e-3)
    peak = 6144 * 275e12 / 238.3e3  # operations of the devices for each token
    assert 6 * shape.parameters / peak == pytest.approx(0.457, abs=5e-4)
    assert model_flops(shape, 3) / (3 * 2048) / peak == pytest.approx(0.462, abs=5e-4)


def test_what_the_hardware_executes() -> None:
    """Full recomputation adds to the hardware's utilisation and not to the model's; fused causal
    attention executes half of the scores."""
    found = make_plan("gpt3-13b", layout="tp=8,recompute=full", batch=8, attention="stored")
    row, plain = found.answer_row, make_plan("gpt3-13b", layout="tp=8", batch=8)
    assert found.hardware_utilisation(row) > 1.25 * found.utilisation(row)
    assert plain.hardware_utilisation(plain.answer_row) < plain.utilisation(plain.answer_row)
    told = found.describe_row(row)
    assert told["utilisation"] == found.utilisation(row)
    assert told["hardware_utilisation"] == found.hardware_utilisation(row)


def test_experts_are_distributed() -> None:
    """A search tries every ep that divides the experts, and a dense model has none; ep can be
    pinned, and is one choice of a named layout."""
    found = make_plan("mixtral-8x7b", devices=32, batch=64)
    assert set(found.layouts.ep.tolist()) == {1, 2, 4, 8}
    assert set(make_plan("gpt3-13b", devices=32).layouts.ep.tolist()) == {1}
    named = make_plan("mixtral-8x7b", layout="dp=16,tp=2,sp=1,zero=1,recompute=full", batch=64)
    assert "ep" in {
        axis for each in nearest_faster(named, named.answer_row, 99) for axis in each.changes
    }
    pinned = make_plan("mixtral-8x7b", devices=32, batch=64, pin="ep=8")
    assert set(pinned.layouts.ep.tolist()) == {8}
    assert pinned.update_seconds.min() >= found.update_seconds.min()
