"""The arithmetic of the benchmarks; nothing here measures time."""

from __future__ import annotations

import importlib.util
import itertools
import sys
from pathlib import Path
from typing import Any

import pytest

FOLDER = Path(__file__).resolve().parents[2] / "benchmarks"


@pytest.fixture(scope="module")
def timing() -> Any:
    """`benchmarks/timing.py`, which is a script's neighbour and in no package."""
    spec = importlib.util.spec_from_file_location("timing", FOLDER / "timing.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["timing"] = module  # its dataclasses look themselves up there
    spec.loader.exec_module(module)
    yield module
    del sys.modules["timing"]


def test_a_ratio_is_the_median_of_the_rounds_not_the_ratio_of_medians(timing: Any) -> None:
    found = timing.ratio([2.0, 30.0, 8.0], [1.0, 10.0, 10.0])  # 2, 3, 0.8; medians: 8 / 10
    assert found.median == 2.0
    assert (found.low, found.high) == pytest.approx((1.4, 2.5))


def test_a_disturbance_that_all_variants_share_changes_no_ratio(timing: Any) -> None:
    load = [1.0, 7.0, 2.0, 100.0]
    found = timing.ratio([3 * x for x in load], [2 * x for x in load])
    assert (found.low, found.median, found.high) == (1.5, 1.5, 1.5)


@pytest.mark.parametrize(("ours", "other"), [([1.0], [1.0]), ([1.0, 2.0], [1.0, 2.0, 3.0])])
def test_rounds_that_do_not_pair_up_are_refused(timing: Any, ours: Any, other: Any) -> None:
    with pytest.raises(ValueError, match=f"received {len(ours)} and {len(other)}"):
        timing.ratio(ours, other)


def test_variants_take_turns_and_each_one_follows_each_other_one(timing: Any) -> None:
    calls: list[str] = []

    def variant(name: str) -> Any:
        def once() -> float:
            calls.append(name)
            return float(len(calls))

        return once

    times = timing.take_turns({name: variant(name) for name in "abc"}, rounds=40, warm_up=2)
    rounds = [calls[i : i + 3] for i in range(0, len(calls), 3)]
    assert len(rounds) == 42
    assert all(sorted(one) == ["a", "b", "c"] for one in rounds)
    followed = {(a, b) for one in rounds for a, b in itertools.pairwise(one)}
    assert followed == {(a, b) for a in "abc" for b in "abc" if a != b}
    assert {name: len(spent) for name, spent in times.items()} == {"a": 40, "b": 40, "c": 40}
    assert min(times["a"] + times["b"] + times["c"]) == 7.0  # six calls warmed up


def test_the_best_competitor_has_the_smallest_median(timing: Any) -> None:
    times = {"ours": [0.0, 0.0], "spiky": [1.0, 1.0, 90.0], "steady": [2.0, 2.0, 2.0]}
    assert timing.fastest(times, ["steady", "spiky"]) == "spiky"


def test_a_target_is_met_by_the_median_and_a_row_without_one_only_reports(timing: Any) -> None:
    times = {"ours": [1.0, 1.1, 1.2], "best": [1.0, 1.0, 1.0]}
    for target, met in ((1.1, True), (1.09, False), (None, None)):
        row = timing.row("s", "w", "a", times, "ours", "best", target=target)
        assert row.met is met
        assert row.describe()["met"] is met
    limit = timing.Row(
        section="s", what="w", against="a", ours=0.3, other=None, unit="s", ratio=None, target=0.25
    )
    assert limit.met is False
