"""Numbers, values and orders of elements as people write them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

#: Largest n in 1/n, √n and 1/√n, and in n/(n − 1), as which a number is recognised.
LARGEST_COUNT, LARGEST_CORRECTION = 4096, 300
#: Relative distance within which a number counts as such an expression.
CLOSE = 5e-6
#: Significand of the powers of two.
HALF = 0.5
#: Maximum number of elements, or of runs of elements, of an order that are shown; smallest number
#: of elements of a run.
MAX_SHOWN_ELEMENTS, MIN_RUN = 12, 4


def has_swapped_halves(order: Sequence[Any]) -> bool:
    """Return whether a list of positions is that of two exchanged halves: ``2, 3, 0, 1``."""
    half = len(order) // 2
    return half > 0 and list(order) == [*range(half, 2 * half), *range(half)]


def is_zipped(order: Sequence[Any]) -> bool:
    """Return whether a list of positions takes those of two halves in turn (``0, 2, 1, 3``), or
    undoes that."""
    half = len(order) // 2
    zipped = [n for pair in zip(range(half), range(half, 2 * half), strict=True) for n in pair]
    back = [*range(0, 2 * half, 2), *range(1, 2 * half, 2)]
    return half > 1 and list(order) in (zipped, back)


def format_order(order: Sequence[Any]) -> str:
    """Format a list of positions, with runs in short: ``8…15, 0…7``, ``0, 2, …, 14``; cut after
    `MAX_SHOWN_ELEMENTS` parts."""
    parts, rest = list[str](), list(order)
    while rest:
        step = rest[1] - rest[0] if len(rest) > 1 else 0
        run = 1
        while run < len(rest) and rest[run] - rest[run - 1] == step:
            run += 1
        if run < MIN_RUN:
            parts.append(format_value(rest.pop(0)))
            continue
        ends = (rest[0], rest[run - 1])
        parts.append(f"{ends[0]}…{ends[1]}" if step == 1 else f"{ends[0]}, {rest[1]}, …, {ends[1]}")
        rest = rest[run:]
    more = ", …" if len(parts) > MAX_SHOWN_ELEMENTS else ""
    return ", ".join(parts[:MAX_SHOWN_ELEMENTS]) + more


def format_value(value: Any) -> str:
    """Format a value (floats with six digits), a list of values in parentheses, or a transform, a
    list that begins with a name, such as ``flip(1)``."""
    if isinstance(value, list | tuple):
        if value and isinstance(value[0], str):
            rest = ", ".join(format_value(one) for one in value[1 : 1 + MAX_SHOWN_ELEMENTS])
            rest += ", …" if len(value) > 1 + MAX_SHOWN_ELEMENTS else ""
            return f"{value[0]}({rest})" if rest else str(value[0])
        return "(" + ", ".join(format_value(one) for one in value) + ")"
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def format_number(value: float) -> str:
    """Format a number with six digits, and behind it the fraction or root that people would have
    written: ``0.176777 = 1/√32``, ``1.03226 = 32/31``. Numbers that are whole up to rounding have
    none, nor have other numbers of up to three digits but 1/8, 1/16, … (``0.125 = 1/8``)."""
    size = abs(value)
    if not math.isfinite(size) or size == 0 or abs(size - round(size)) <= CLOSE * size:
        return format_value(value if not math.isfinite(size) else float(round(value)))
    text, sign = format_value(value), "-" if value < 0 else ""
    if math.frexp(size)[0] == HALF and size < HALF * HALF:
        return f"{text} = {sign}1/{round(1 / size)}"
    known = "" if float(f"{value:.3g}") == value else recognise(size)
    return f"{text} = {sign}{known}" if known else text


def recognise(size: float) -> str:
    """Return a positive number as ``1/n``, ``√n``, ``1/√n``, ``n/m`` or ``m/n`` (m = n − 1), with
    limits on n; empty if it is none of these."""

    def is_count(number: float) -> bool:
        """Return whether a number is close to a whole number from 2 to `LARGEST_COUNT`."""
        n = round(number)
        return 2 <= n <= LARGEST_COUNT and abs(number - n) <= CLOSE * n

    if is_count(1 / size):
        return f"1/{round(1 / size)}"
    if is_count(size * size):
        return f"√{round(size * size)}"
    if is_count(1 / (size * size)):
        return f"1/√{round(1 / (size * size))}"
    for ratio, text in ((size, "{n}/{m}"), (1 / size, "{m}/{n}")):
        n = round(ratio / (ratio - 1)) if 1 < ratio < 2 else 0
        if 2 < n <= LARGEST_CORRECTION and abs(ratio - n / (n - 1)) <= CLOSE:
            return text.format(n=n, m=n - 1)
    return ""
