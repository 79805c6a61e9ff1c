"""Scales: map axis positions to pixels, choose the ends of an axis and its ticks."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dualml.common.words.numbers import superscript
from dualml.report.figure import Axis, Values

LINEAR_PART = 0.3  # decades that symlog uses for values below 1


@dataclass(frozen=True)
class Scale:
    """An axis with its range: ``low`` lies at pixel ``start`` and ``high`` at ``end``."""

    axis: Axis
    kind: str
    low: float
    high: float
    start: float = 0.0
    end: float = 1.0

    def __call__(self, value: float) -> float:
        """Return the position of one value in pixels; NaN if the scale cannot show it."""
        return float(self.to_pixels([value])[0])

    def to_pixels(self, values: Values) -> NDArray[np.float64]:
        """Return positions in pixels; NaN if the scale cannot show a value."""
        a, b = _warp(np.array([self.low, self.high]), self.kind).tolist()
        share = (_warp(np.asarray(values, dtype=float), self.kind) - a) / ((b - a) or 1.0)
        return np.asarray(self.start + (self.end - self.start) * share)

    def ticks(self) -> list[tuple[float, str]]:
        """Return the positions of ticks with their labels: those that the axis sets within the
        range, all its names, or else about as many round values as fit."""
        if self.axis.ticks is not None:
            return [t for t in self.axis.ticks if self.low <= t[0] <= self.high]
        if self.axis.names:
            return [(float(k), name) for k, name in enumerate(self.axis.names)]
        room = abs(self.end - self.start) / (62 if self.end > self.start else 30)
        return ticks(self.kind, self.low, self.high, max(2.0, room), whole=self.axis.integer_ticks)

    def minor_ticks(self) -> list[float]:
        """Return the positions of minor ticks between powers of ten. Empty unless the scale is
        logarithmic to base 10, for nine powers or more, and if the axis sets its ticks."""
        if self.kind != "log" or self.high / self.low >= 1e9 or self.axis.ticks is not None:
            return []
        powers = range(math.floor(math.log10(self.low)), math.ceil(math.log10(self.high)))
        return [
            v for k in powers for m in range(2, 10) if self.low <= (v := m * 10.0**k) <= self.high
        ]

    def format_value(self, value: float) -> str:
        """Return a value as text: its tick label or name if it has one, else as `format_short`
        formats it."""
        for at, name in self.axis.ticks or enumerate(self.axis.names):
            if name and math.isclose(at, value, rel_tol=1e-9, abs_tol=1e-9):
                return name
        return format_short(value)


def fit_scale(axis: Axis, values: Iterable[float], room: float = 0.0) -> Scale:
    """Return the scale that includes all finite values, with a margin, except at ends that the axis
    fixes. An axis of names includes its names, whatever the values.

    Args:
        axis: the axis.
        values: the positions to include; a logarithmic scale ignores those that are not positive.
        room: share of the axis that texts at the ends of bars take.
    """
    if axis.names:
        low = -0.6 if axis.low is None else axis.low
        high = len(axis.names) - 0.4 if axis.high is None else axis.high
        return Scale(axis, "linear", low, high)
    shown = [v for v in values if math.isfinite(v)]
    positive = [v for v in shown if v > 0]
    kind: str = axis.scale
    if kind == "auto":
        kind = "log" if positive and max(positive) / min(positive) > axis.log_factor else "linear"
    if kind in ("log", "log2"):
        shown = positive
    usual = (1.0, 10.0) if "log" in kind else (0.0, 1.0)
    low = min(shown, default=usual[0]) if axis.low is None else axis.low
    high = max(shown, default=usual[1]) if axis.high is None else axis.high
    a, b = _warp(np.array([low, high]), kind).tolist()
    air = 0.045 * (b - a) if b > a else max(0.5, 0.05 * abs(a)) if kind == "linear" else 0.5
    a -= air if axis.low is None else 0.0
    b += air + room * (b - a) / max(0.1, 1 - room) if axis.high is None else 0.0
    return Scale(axis, kind, _unwarp(a, kind), _unwarp(b, kind))


def _warp(values: NDArray[np.float64], kind: str) -> NDArray[np.float64]:
    """Return the positions of values on a linear, logarithmic or symlog scale; NaN where a
    logarithm does not exist."""
    if kind == "linear":
        return values
    with np.errstate(divide="ignore", invalid="ignore"):
        if kind == "symlog":
            bent = np.sign(values) * (LINEAR_PART + np.log10(np.maximum(np.abs(values), 1)))
            return np.where(np.abs(values) < 1, LINEAR_PART * values, bent)
        warped = np.log2(values) if kind == "log2" else np.log10(values)
    return np.where(values > 0, warped, np.nan)


def _unwarp(value: float, kind: str) -> float:
    """Return the value at a position of a linear, ``log``, ``log2`` or ``symlog`` scale; the
    inverse of `_warp` for one number."""
    if kind in ("log", "log2"):
        return float((2.0 if kind == "log2" else 10.0) ** value)
    if kind == "symlog" and abs(value) >= LINEAR_PART:
        return math.copysign(10 ** (abs(value) - LINEAR_PART), value)
    return value / LINEAR_PART if kind == "symlog" else value


def ticks(
    kind: str, low: float, high: float, most: float, *, whole: bool = False
) -> list[tuple[float, str]]:
    """Return about ``most`` round positions between low and high with their labels. A ``symlog``
    scale has 0 and every power of ten; a ``log`` scale with fewer than two powers of ten has their
    multiples by 1, 2 and 5 or, if only one of these lies inside, linear ticks.

    Args:
        kind: ``linear``, ``log``, ``log2`` or ``symlog``.
        low, high: ends of the axis; positive on a ``log`` or ``log2`` scale.
        most: wanted number of ticks.
        whole: allow only whole numbers on a linear scale.
    """
    if kind == "log2":
        return [
            (2.0**k, format_plain(2.0**k)) for k in _powers(math.log2(low), math.log2(high), most)
        ]
    if kind == "symlog":
        tens = [10.0**k for k in _powers(0, math.log10(max(high, 1)), math.inf)]
        return [(v, format_power(v)) for v in (0.0, *tens) if low <= v <= high]
    if kind == "log":
        kept = _powers(math.log10(low), math.log10(high), most)
        first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
        short = kept and kept[0] >= -3 and kept[-1] <= 5
        if len(_powers(math.log10(low), math.log10(high), math.inf)) > 1:
            return [
                (10.0**k, format_power(10.0**k) if short else f"10{superscript(k)}") for k in kept
            ]
        every = [m * 10.0**k for k in range(first, last + 1) for m in (1, 2, 5)]
        inside = [(v, format_plain(v)) for v in every if low <= v <= high]
        if len(inside) > 1:
            return inside
    return _linear_ticks(low, high, most, whole and kind != "log")


def _powers(low: float, high: float, most: float) -> range:
    """Return the whole exponents between ``low`` and ``high``, which are exponents too, thinned to
    at most ``most``."""
    powers = range(math.ceil(low - 1e-9), math.floor(high + 1e-9) + 1)
    return powers[:: max(1, math.ceil(len(powers) / most))]


def _linear_ticks(low: float, high: float, most: float, whole: bool) -> list[tuple[float, str]]:
    """Return evenly spaced round positions with their labels."""
    if high <= low:
        return [(low, format_plain(low))]
    rough = (high - low) / most
    unit = 10.0 ** math.floor(math.log10(rough))
    step = next(m * unit for m in (1, 2, 2.5, 5, 10) if m * unit >= rough * (1 - 1e-9))
    if whole:
        step = max(1.0, float(math.ceil(step)))
    places = range(math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9) + 1)
    scaled = [step * 10**d for d in range(9)]
    digits = next((d for d, v in enumerate(scaled) if math.isclose(v, round(v), rel_tol=1e-9)), 9)
    if digits > 6 or max(abs(low), abs(high)) >= 1e7:
        return [(k * step, format_power(k * step) if k else "0") for k in places]
    return [(k * step, _minus(f"{k * step:,.{digits}f}")) for k in places]


def _minus(text: str) -> str:
    """Replace hyphens in a formatted number by minus signs."""
    return text.replace("-", "−")


def _scientific(value: float, digits: int) -> str:
    """Format a number as ``2.5 · 10⁻³`` with at most ``digits`` decimals; a power of ten as
    ``10⁻³`` alone."""
    mantissa, exponent = f"{value:.{digits}e}".split("e")
    ten = f"10{superscript(int(exponent))}"
    return ten if mantissa == "1.0" else _minus(f"{float(mantissa):g} · {ten}")


def format_short(value: float) -> str:
    """Format a value with four significant digits; from 1,000 on without decimals; below 0.001 and
    from a million on with at most two decimals and a power of ten, as ``1.23 · 10⁶``. NaN and
    infinity are a dash."""
    if not math.isfinite(value):
        return "–"
    if value and not 1e-3 <= abs(value) < 1e6:
        return _scientific(value, 2)
    return _minus(f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}")


def format_plain(value: float) -> str:
    """Format a value like ``0.05`` or ``1,000``, with four significant digits unless it is whole;
    below 0.0001 and from a million on as `format_power` does."""
    if value and not 1e-4 <= abs(value) < 1e6:
        return format_power(value)
    return _minus(f"{value:,.0f}" if float(value).is_integer() else f"{value:.4g}")


def format_power(value: float) -> str:
    """Format a value like ``10⁻⁷`` or ``2.5 · 10⁻⁷``, with one decimal; from 0.001 to 100,000, and
    0, as a plain number with at most three decimals."""
    if value == 0 or 1e-3 <= abs(value) <= 1e5:
        return _minus(f"{value:,.3f}".rstrip("0").rstrip("."))
    return _scientific(value, 1)
