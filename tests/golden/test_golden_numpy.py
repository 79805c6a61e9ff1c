"""Runs with the NumPy backend match their records; and the comparison can fail."""

from __future__ import annotations

import json
from copy import deepcopy
from typing import Any

import golden_check
import golden_numpy
import pytest
from golden_files import differences, normalised, read_json


@pytest.mark.parametrize("name", [n for n in golden_check.NAMES if n.startswith("numpy/")])
def test_a_run_is_what_was_recorded(name: str) -> None:
    assert golden_check.check(name) == []


def test_times_are_elided_and_their_keys_are_not() -> None:
    told = {"wall_s": 1.5, "ranks": [{"wait_s": 0.1, "rank": 0}], "train_s": None, "loss": 2.0}
    assert normalised(told) == {
        "wall_s": "~",
        "ranks": [{"wait_s": "~", "rank": 0}],
        "train_s": None,
        "loss": 2.0,
    }
    assert normalised({"loss": 2.0}) != normalised({"wall_s": 3.0, "loss": 2.0})


@pytest.mark.parametrize(
    ("was", "now", "close"),
    [
        ({"a": 1}, {"a": 1, "b": 2}, True),
        ({"a": 1, "b": 2}, {"a": 1}, True),
        ([1, 2], [1], True),
        ({"a": "equal"}, {"a": "different"}, True),
        ([1.0], [1.0 + 1e-8], True),
        ([1], [1.0], True),
        ([1.0], [1.0 + 1e-12], False),
        ({"a": None}, {"a": 0.0}, True),
    ],
)
def test_a_difference_is_seen(was: Any, now: Any, close: bool) -> None:
    assert differences(was, now, close=close)
    assert not differences(was, was, close=close)


def test_rounding_is_none_on_another_machine_only() -> None:
    was = read_json(golden_check.record_of("numpy/lab1"))
    now = json.loads(json.dumps(was))
    [first, *_] = now["trials"].values()
    first["records"]["rank0"]["loss"]["value"][-1] *= 1 + 1e-12
    assert golden_numpy.compare(was, now)
    now["bytes"]["machine"]["cpu"] = "another"
    now["bytes"]["parity.json"] = "another"
    assert golden_numpy.compare(was, now) == []
    first["records"]["rank0"]["loss"]["value"][-1] *= 1 + 1e-6
    assert golden_numpy.compare(was, now)


def test_digests_of_trained_numbers_count_on_their_machine_alone() -> None:
    """On another machine, rounding and every digest of weights differ, and the comparison allows
    it."""
    was = golden_check.read_json(golden_check.record_of("numpy/lab2"))
    now = deepcopy(was)
    check = next(t["agreement"] for t in now["run"]["trials"] if "agreement" in t)["checks"][0]
    check["sha256"] = "0" * 64
    assert len(golden_numpy.compare(was, now)) == 1
    now["bytes"]["machine"]["cpu"] = "another"
    assert golden_numpy.compare(was, now) == []
    now["run"]["trials"][-1]["status"] = "failed"
    assert len(golden_numpy.compare(was, now)) == 1
