"""Formats of numbers, the same in both languages; a missing number is a dash.

Message files refer to these functions by name, as in ``{seconds:ms}``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, TypeGuard

#: Text of a missing value.
NO_VALUE = "–"
_SUPERSCRIPT = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def is_finite_number(x: Any) -> TypeGuard[float]:
    """Return whether the value is a finite int or float; False for None, text, booleans, and
    NumPy's numbers except float64."""
    return isinstance(x, int | float) and not isinstance(x, bool) and math.isfinite(x)


def quantity(x: Any, digits: int = 3) -> str:
    """Format whole numbers with thousands separators, others with ``digits`` significant digits.

    Others from 10^``digits`` are rounded to whole numbers; those below 0.001 are `scientific`. All
    that `is_finite_number` excludes, such as None and integers of NumPy, is a dash.
    """
    if not is_finite_number(x):
        return NO_VALUE
    if float(x).is_integer():
        return f"{int(x):,}"
    if abs(x) >= 10**digits - 0.5:  # what is below rounds to a number of `digits` digits
        return f"{round(x):,}"
    return scientific(x, digits) if abs(x) < 1e-3 else f"{x:.{digits}g}"


def ms(seconds: Any) -> str:
    """Format seconds as milliseconds by `quantity`, without the unit: three significant digits,
    from 1000 as an integer; a missing number is a dash."""
    return quantity(1e3 * seconds) if is_finite_number(seconds) else NO_VALUE


def percent(x: Any) -> str:
    """Format a fraction as a percentage with one decimal: ``12.5 %``; a missing number is a
    dash."""
    return f"{100 * x:.1f} %" if is_finite_number(x) else NO_VALUE


def whole(x: Any) -> str:
    """Format a number rounded to an integer, with thousands separators; a missing one is a dash."""
    return f"{x:,.0f}" if is_finite_number(x) else NO_VALUE


def loss(x: Any) -> str:
    """Format a loss as `quantity` does, with four significant digits; a missing one is a dash."""
    return quantity(x, 4)


def scientific(x: Any, digits: int = 2) -> str:
    """Format as ``3.1×10⁻⁷``, with ``digits`` significant digits. 0 and numbers from 0.01 to below
    1000 are as in Python's ``g``: ``0.02``, but 150 is ``1.5e+02``. A missing number is a dash."""
    if not is_finite_number(x):
        return NO_VALUE
    if x == 0 or 1e-2 <= abs(x) < 1e3:
        return f"{x:.{digits}g}"
    mantissa, _, exponent = f"{x:.{digits - 1}e}".partition("e")
    return f"{mantissa}×10{superscript(int(exponent))}"


def superscript(exponent: int) -> str:
    """Format an exponent in superscript digits."""
    return str(exponent).translate(_SUPERSCRIPT)


def factor(x: Any) -> str:
    """Format a ratio with three significant digits, from a hundred as an integer, without a sign
    ``×``; a missing number is a dash."""
    if not is_finite_number(x):
        return NO_VALUE
    return f"{round(x):,}" if abs(x) >= 100 else f"{x:.3g}"


def times(x: Any) -> str:
    """Format a factor with a multiplication sign: ``× 1.5``; a missing number is ``× –``."""
    return f"× {factor(x)}"


def nbytes(x: Any) -> str:
    """Format bytes with a binary unit up to GiB: ``64 KiB``, ``3 B``; a missing number is a
    dash."""
    if not is_finite_number(x):
        return NO_VALUE
    for power, unit in ((2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB")):
        if x >= power:
            return f"{factor(x / power)} {unit}"
    return f"{factor(x)} B"


def points(x: Any) -> str:
    """Format a fraction as percentage points, ``+0.12``, ``−3.40``, ``0.00``; a missing number is a
    dash."""
    if not is_finite_number(x):
        return NO_VALUE
    text = f"{100 * x:+.2f}"
    return text[1:] if float(text) == 0 else text.replace("-", "−")


def plain(value: Any) -> str:
    """Format the value of a setting: floats in short form, lists in parentheses, None as a dash."""
    if isinstance(value, list | tuple):
        return f"({', '.join(plain(v) for v in value)})"
    if isinstance(value, float):
        return f"{value:g}"
    return NO_VALUE if value is None else str(value)


def mean(values: list[float | None]) -> float | None:
    """Return the mean of the finite numbers among ``values``, or None if there is none."""
    kept = [v for v in values if v is not None and is_finite_number(v)]
    return sum(kept) / len(kept) if kept else None


def format_by_name(name: str, value: Any) -> str:
    """Format a value by the function of this module called ``name``, which must be in `FORMATTERS`;
    of statistics over several seeds (with a float attribute ``mean``), the mean."""
    mean = getattr(value, "mean", None)
    return FORMATTERS[name](mean if isinstance(mean, float) else value)


#: Functions that format a number, by name.
FORMATTERS: Mapping[str, Callable[[Any], str]] = {
    function.__name__: function
    for function in (
        quantity,
        ms,
        percent,
        loss,
        scientific,
        factor,
        times,
        nbytes,
        points,
        whole,
        plain,
    )
}
