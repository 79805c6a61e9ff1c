"""The arithmetic of benchmarks/power: intervals, thresholds and detection limits."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

FOLDER = Path(__file__).resolve().parents[2] / "benchmarks"
sys.path.insert(0, str(FOLDER))
from power import figures, pages  # noqa: E402

sys.path.remove(str(FOLDER))


@pytest.fixture
def power() -> Any:
    return SimpleNamespace(**vars(figures), format_value=pages.format_value)


def file(**tensors: float) -> dict[str, Any]:
    """Return an envelope file of three updates; the loss widens from 1e-7 to 4e-7."""
    told = {key.replace("__", "/"): width for key, width in tensors.items()}
    return {"draws": 3, "loss": [1e-7, 2e-7, 4e-7], "tensors": told}


def test_the_interval_is_that_of_clopper_and_pearson(power: Any) -> None:
    assert power.interval(0, 10) == pytest.approx((0.0, 0.3085), abs=1e-4)
    assert power.interval(10, 10) == pytest.approx((0.6915, 1.0), abs=1e-4)
    assert power.interval(3, 10) == pytest.approx((0.0667, 0.6525), abs=1e-4)


def test_no_alarm_in_n_bounds_the_rate_by_three_over_n(power: Any) -> None:
    assert power.upper_bound(1000) == pytest.approx(3 / 1000, rel=5e-3)
    assert power.upper_bound(1) == pytest.approx(0.95)


def test_thresholds_are_the_margin_times_the_widest_envelope_that_counts(power: Any) -> None:
    one = file(
        update__00000001__a=2e-6,
        update__00000001__b=4e-6,
        update__00000003__a=1e-5,
        update__00000003__b=3e-6,
    )
    two = file(
        update__00000001__a=1e-6,
        update__00000001__b=8e-6,
        update__00000003__a=2e-6,
        update__00000003__b=2e-6,
    )
    found = power.thresholds([one, two])
    assert found["update"][1] == pytest.approx(10 * (2e-6 + 8e-6) / 2)  # larger of the two backends
    assert found["update"][3] == pytest.approx(10 * (1e-5 + 8e-6) / 2)  # b: as wide as at update 1
    assert found["loss"][1] == pytest.approx(10 * 2.0**-23)  # never below one rounding
    assert found["loss"][3] == pytest.approx(4e-6)
    assert "gradient" not in found


def test_a_cut_envelope_is_that_of_a_shorter_horizon(power: Any) -> None:
    told = file(update__00000001__a=1.0, update__00000003__a=2.0)
    told["plain"] = {"loss": [1.0, 2.0, 3.0], "tensors": dict(told["tensors"])}
    short = power.shorten_envelope(told, 2)
    assert short["loss"] == [1e-7, 2e-7]
    assert short["draws"] == 3
    assert short["tensors"] == short["plain"]["tensors"] == {"update/00000001/a": 1.0}
    assert short["plain"]["loss"] == [1.0, 2.0]
    assert len(told["loss"]) == 3


def test_always_and_never_are_the_ends_of_the_range_between(power: Any) -> None:
    rows = [
        {"kind": "rate", "arm": "sgd", "delta": delta, "found": {"50": delta * seed >= 2e-3}}
        for delta in power.sizes(-4, -2)
        for seed in (1, 2, 30)
    ]
    counts = power.counts(rows, "rate", "sgd", 50)
    assert counts == {1e-4: (1, 3), 3e-4: (1, 3), 1e-3: (2, 3), 3e-3: (3, 3), 1e-2: (3, 3)}
    assert power.smallest_always_found(counts) == 3e-3
    assert power.largest_never_found(counts) is None
    assert power.largest_never_found({1e-6: (0, 3), 1e-5: (0, 3), 1e-4: (1, 3)}) == 1e-5
    assert power.smallest_always_found({1e-6: (3, 3), 1e-5: (2, 3)}) is None


@pytest.mark.parametrize(
    ("value", "text"),
    [(3e-6, "3e-6"), (1.23e-7, "1.2e-7"), (2.849, "2.85"), (16489.7, "16,490"), (0, "0")],
)
def test_numbers_are_short(power: Any, value: float, text: str) -> None:
    assert power.format_value(value) == text
