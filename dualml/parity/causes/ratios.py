"""Find the single factor between arrays of two traces."""

from __future__ import annotations

import math
from collections.abc import Mapping
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dualml.parity.models.gap import gap
from dualml.parity.models.trace import Trace

Array = NDArray[Any]
#: Relative spread below which two arrays have one ratio.
ONE_RATIO = 1e-4
#: Minimum share of moved elements that have the same ratio.
MIN_AGREEING_SHARE = 0.8
#: Moves smaller than this share of the largest one are ignored.
MIN_RELATIVE_MOVE = 1e-3
#: Maximum denominator of plausible fractions; relative tolerance of a factor.
MAX_DENOMINATOR, FACTOR_RTOL = 64, 2e-6


def is_plausible_factor(c: float) -> bool:
    """Return whether people or their schedules would use such a factor: a simple fraction, its
    root, three digits or a point of half a cosine.

    The factor by which clipping or a norm changes an update is none of these, except by chance. The
    sign does not count, and 0 is plausible.

    >>> is_plausible_factor(1 / 3), is_plausible_factor(0.995)
    (True, True)
    >>> is_plausible_factor(0.5 + 0.5 * math.cos(math.pi / 7)), is_plausible_factor(0.995877561)
    (True, False)
    """
    size = abs(c)
    if not 0 < size < math.inf:
        return size == 0
    digits = float(f"{size:.3g}")
    fractions = [float(Fraction(x).limit_denominator(MAX_DENOMINATOR)) for x in (size, size * size)]
    if size > 1:
        fractions.append(1 / float(Fraction(1 / size).limit_denominator(MAX_DENOMINATOR) or 1))
    angle = math.acos(2 * size - 1) / math.pi if size <= 1 else 0.0
    cosine = 0.5 + 0.5 * math.cos(
        math.pi * float(Fraction(angle).limit_denominator(MAX_DENOMINATOR))
    )
    guesses = (digits, fractions[0], math.sqrt(fractions[1]), *fractions[2:], cosine)
    return any(abs(size - guess) <= FACTOR_RTOL * size for guess in guesses)


def common_ratio(a: Array, b: Array) -> float | None:
    """Return the number c with b = c · a, up to the relative distance ONE_RATIO; None if there is
    none, if the shapes differ, if some number is not finite, or if ``a`` is zero everywhere."""
    x, y = a.ravel().astype(np.float64), b.ravel().astype(np.float64)
    size = float(x @ x)
    if a.shape != b.shape or not size:
        return None
    if not (np.isfinite(size) and np.isfinite(y).all()):
        return None
    c = float(x @ y) / size
    return c if gap(c * x, y) < ONE_RATIO or (c == 0 and not y.any()) else None


def paired_arrays(
    a: Trace, b: Trace, phase: str, step: int, names: Mapping[str, str]
) -> dict[str, tuple[Array, Array]]:
    """Return the arrays (of ``a``, of ``b``) of a phase and step that both traces have with the
    same shape, by ``a``'s name.

    Args:
        names: ``b``'s parameter names → ``a``'s, with or without the prefix ``parameter:``.
    """
    back = {v.removeprefix("parameter:"): k.removeprefix("parameter:") for k, v in names.items()}
    rows = {}
    for name in a.names(phase, step):
        x, y = a.find_array(phase, step, name), b.find_array(phase, step, back.get(name, name))
        if x is not None and y is not None and x.shape == y.shape:
            rows[name] = (x, y)
    return rows


def update_ratio(a: Trace, b: Trace, step: int, names: Mapping[str, str]) -> float | None:
    """Return the factor from ``a``'s weight updates of a step to ``b``'s that most elements share;
    None if there is none, or if the weights before were not recorded.

    Small updates are ignored, and up to a fifth of the others may have another factor.
    """
    rows = paired_arrays(a, b, "update", step, names)
    back = {v.removeprefix("parameter:"): k.removeprefix("parameter:") for k, v in names.items()}
    x, y = [], []
    for name, (p, q) in rows.items():
        start, other = weight_before(a, step, name), weight_before(b, step, back.get(name, name))
        if start is None or other is None or start.shape != other.shape:
            return None
        x.append((p.astype(np.float64) - start).ravel())
        y.append((q.astype(np.float64) - other).ravel())
    if not x:
        return None
    move, there = np.concatenate(x), np.concatenate(y)
    moved = np.abs(move) > MIN_RELATIVE_MOVE * np.abs(move).max()
    if not moved.any():
        return None
    move, there = move[moved], there[moved]
    c = float(np.median(there / move))
    # Adam turns a gradient that is mere rounding into a full step.
    alike = np.abs(there / move - c) <= 1e-2 * abs(c)
    if np.mean(alike) < MIN_AGREEING_SHARE:
        return None
    return float(move[alike] @ there[alike]) / float(move[alike] @ move[alike])


def weight_before(a: Trace, step: int, name: str) -> Array | None:
    """Return the weight ``name`` as it is before an update; None if it was not recorded."""
    return a.initial_parameters().get(name) if step == 1 else a.find_array("update", step - 1, name)
