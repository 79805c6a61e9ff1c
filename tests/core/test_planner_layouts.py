"""Layouts as columns: defaults, selection and description."""

from __future__ import annotations

from dualml.planning.planner.layouts import OPTIONAL_AXES, Layouts


def test_columns_that_are_left_out_have_their_defaults() -> None:
    x = Layouts.from_axes(32, dp=8, tp=4, cp=2)
    described = x.describe(0)
    assert described["etp"] == 4
    assert {key: described[key] for key in OPTIONAL_AXES if key != "etp"} == {
        key: value for key, value in OPTIONAL_AXES.items() if key != "etp"
    }
    assert x.zero_devices[0] == 16


def test_hybrid_sharding_shards_inside_of_a_group() -> None:
    x = Layouts.from_axes(32, dp=16, cp=2, replicate=4)
    assert (x.devices[0], x.zero_devices[0]) == (32, 8)


def test_experts_have_a_group_of_their_own() -> None:
    """64 of 128 · 2 devices hold the experts of a layer, once each: four hold the same ones."""
    x = Layouts.from_axes(128, dp=128, tp=2, ep=64, etp=1)
    assert x.expert_devices[0] == 4
    x = Layouts.from_axes(128, dp=128, tp=2, ep=64)
    assert x.expert_devices[0] == 2


def test_selected_rows_keep_all_columns() -> None:
    x = Layouts.from_axes(8, dp=4, tp=2, ep=4, etp=1, schedule="dualpipe", reshard=False)
    assert x.select_rows([0]).describe(0) == x.describe(0)
    assert x.describe(0)["schedule"] == "dualpipe"
    assert x.describe(0)["reshard"] is False
