"""Parsing and formatting of sizes, times and rates with units."""

from __future__ import annotations

import re

from dualml.common.errors import UserError
from dualml.common.strict_model import clip_text

#: Largest number in any unit: its product with the largest unit is still finite.
MAX_NUMBER = 1e18

#: Unit → how many make a second; dividing by it rounds once, so 50us is exactly 5e-5.
PER_SECOND = {"ns": 1e9, "us": 1e6, "µs": 1e6, "μs": 1e6, "ms": 1e3, "s": 1.0}
BYTES = {"": 1, "b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12}
BYTES |= {"kib": 2**10, "mib": 2**20, "gib": 2**30, "tib": 2**40}
BITS = {"bit": 1 / 8, "kbit": 125.0, "mbit": 125e3, "gbit": 125e6, "tbit": 125e9}
OPERATIONS = {"": 1.0, "m": 1e6, "g": 1e9, "t": 1e12, "p": 1e15}


def _split_unit(text: str, what: str, how: str) -> tuple[float, str]:
    """Split text into a number and its unit, empty without one. Raise `UserError`, which says to
    write ``how``, if it is no number, or one above 10¹⁸; the unit is not checked."""
    parts = re.fullmatch(r"\s*(\d+(?:\.\d*)?(?:[eE][-+]?\d+)?|\.\d+)\s*(\S*)\s*", text)
    if not parts or not float(parts[1]) <= MAX_NUMBER:
        raise UserError(f"{what} {clip_text(repr(text))}: write {how}")
    return float(parts[1]), parts[2]


def parse_seconds(text: str, what: str = "time") -> float:
    """Parse a time in seconds: ``50us``, ``20ms``, ``1.5s``; 0 needs no unit. ``what`` names the
    value in errors.

    Raises:
        UserError: anything else.
    """
    how = "a number with ns, us, ms or s, as in 50us"
    value, unit = _split_unit(text, what, how)
    if unit not in PER_SECOND and not (unit == "" and value == 0):
        raise UserError(f"{what} {text!r}: write {how}")
    return value / PER_SECOND.get(unit, 1.0)


def parse_bytes(text: str, what: str = "size") -> int:
    """Parse a size into bytes, rounded to a whole number: ``4MB``, ``64KiB``, ``1000``. ``what``
    names the value in errors.

    Raises:
        UserError: anything else.
    """
    how = "bytes, or a number with KB, MB, GB (1000) or KiB, MiB, GiB (1024), as in 4MB"
    value, unit = _split_unit(text, what, how)
    if unit.lower() not in BYTES:
        raise UserError(f"{what} {text!r}: write {how}")
    return round(value * BYTES[unit.lower()])


def parse_rate(text: str, what: str = "bandwidth") -> float:
    """Parse a bandwidth in bytes per second, above 0: ``1GB/s``, ``10Gbit/s``. ``what`` names the
    value in errors.

    Raises:
        UserError: anything else.
    """
    how = "a number above 0 with MB/s, GB/s, Mbit/s or Gbit/s, as in 1GB/s"
    value, unit = _split_unit(text, what, how)
    known = {**BITS, **{name: float(size) for name, size in BYTES.items() if name}}
    name = unit.lower().removesuffix("/s")
    if name not in known or not unit.lower().endswith("/s") or value <= 0:
        raise UserError(f"{what} {text!r}: write {how}")
    return value * known[name]


def parse_flops(text: str, what: str = "peak") -> float:
    """Parse operations per second, above 0: ``312TFLOP/s``, ``50GFLOP/s``. ``what`` names the value
    in errors.

    Raises:
        UserError: anything else.
    """
    how = "a number above 0 with GFLOP/s, TFLOP/s or PFLOP/s, as in 312TFLOP/s"
    value, unit = _split_unit(text, what, how)
    name = unit.lower().removesuffix("/s").removesuffix("flop")
    if name not in OPERATIONS or not unit.lower().endswith("flop/s") or value <= 0:
        raise UserError(f"{what} {text!r}: write {how}")
    return value * OPERATIONS[name]


def parse_seconds_per_byte(text: str, what: str = "beta") -> float:
    """Parse seconds per byte: ``1ns/B``, or without ``/B``; 0 needs no unit. ``what`` names the
    value in errors.

    Raises:
        UserError: anything else.
    """
    try:
        return parse_seconds(re.sub(r"/[bB]$", "", text.strip()), what)
    except UserError:
        raise UserError(f"{what} {text!r}: write seconds per byte, as in 1ns/B") from None


def format_seconds(value: float) -> str:
    """Format seconds with three significant digits, or with all digits before the point if there
    are more: ``12.3 µs``, ``4.56 ms``, ``1.23 s``, ``1,234 s``.

    >>> format_seconds(0.00123)
    '1.23 ms'
    """
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
        if value >= 0.9995 * size:
            return f"{_digits(value / size)} {unit}"
    return f"{_digits(value / 1e-9)} ns" if value else "0 s"


def format_bytes(value: float) -> str:
    """Format bytes in units of 1000 with up to four significant digits, ``207.6 kB``, ``4 MB``;
    with an exponent from 10,000 GB on."""
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if value >= size:
            return f"{value / size:.4g} {unit}"
    return f"{value:g} B"


def _digits(x: float) -> str:
    """Format a number with three significant digits, or, from 100 on, as a whole number with
    commas."""
    return f"{x:,.0f}" if x >= 99.95 else f"{x:#.3g}"
