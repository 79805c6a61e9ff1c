"""Formatting of numbers in both languages."""

from __future__ import annotations

import pytest

from dualml.common.words import numbers


@pytest.mark.parametrize(
    ("written", "shown"),
    [
        (numbers.percent(0.1234), "12.3 %"),
        (numbers.percent(None), "–"),
        (numbers.quantity(12_345), "12,345"),
        (numbers.quantity(1.23456), "1.23"),
        (numbers.quantity(98_765.4), "98,765"),
        (numbers.quantity(999.7), "1,000"),
        (numbers.quantity(-999.4), "-999"),
        (numbers.quantity(99.97), "100"),
        (numbers.loss(9999.7), "10,000"),
        (numbers.quantity(3.14e-7), "3.14×10⁻⁷"),
        (numbers.scientific(3.14e-7), "3.1×10⁻⁷"),
        (numbers.scientific(0.25), "0.25"),
        (numbers.factor(123.4), "123"),
        (numbers.factor(1.2345), "1.23"),
        (numbers.factor(float("nan")), "–"),
    ],
)
def test_numbers_as_they_are_written(written: str, shown: str) -> None:
    assert written == shown


def test_a_mean_is_of_the_numbers_that_are_there() -> None:
    assert numbers.mean([1.0, None, 2.0]) == 1.5
    assert numbers.mean([None]) is None
