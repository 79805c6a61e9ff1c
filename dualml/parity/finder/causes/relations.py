"""Hypotheses that need no formula: which tensor, update or rank is how many times what it should
be."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dualml.parity.finder.causes.base import (
    Arrays,
    Hypothesis,
    Observation,
    Predict,
    clip_by_norm,
    fit_factor,
    global_norm,
)

#: Name → tensor.
NamedArrays = Mapping[str, NDArray[Any]]
#: A fitted number this near to a fraction with a small denominator is that fraction.
FACTOR_TOLERANCE = 2e-5
LARGEST_DENOMINATOR = 16


def nearest_simple(number: float) -> float:
    """Return the fraction with a denominator of up to LARGEST_DENOMINATOR that a fitted number
    means, if it is within a relative FACTOR_TOLERANCE of one other than 0; else the number
    itself."""
    if not np.isfinite(number):
        return number
    simple = float(Fraction(number).limit_denominator(LARGEST_DENOMINATOR))
    return simple if simple and abs(number - simple) <= FACTOR_TOLERANCE * abs(simple) else number


def is_one(factor: float) -> bool:
    """Return whether a fitted factor is 1, up to FACTOR_TOLERANCE."""
    return abs(factor - 1) < FACTOR_TOLERANCE


def tensor_factors(suspect: Observation) -> Iterator[Hypothesis]:
    """Yield the hypothesis that some tensors are a multiple of what they should be, the same one in
    every update; of an update, that they move by a multiple."""
    moves = suspect.phase == "update"

    def origin(step: int, name: str) -> Any:
        return suspect.scene.recorded_start(step)[0][name] if moves else 0.0

    pairs: dict[str, list[tuple[NDArray[Any], NDArray[Any]]]] = {}
    for step, name, seen, right in suspect.comparable_tensors():
        if np.isfinite(seen).all():
            start = origin(step, name)
            pairs.setdefault(name, []).append((seen - start, right - start))
    factors = {name: nearest_simple(fit_factor(both)) for name, both in pairs.items()}
    odd = {name: c for name, c in factors.items() if not is_one(c)}
    odd = {name: c for name, c in odd.items() if is_multiple(pairs[name], c)}
    if not odd or (len(odd) == len(factors) and len(set(odd.values())) == 1):
        return  # all alike: that is the whole gradient, or the rate

    def predict(step: int, rank: int) -> Arrays:
        right = suspect.expected(step, rank)
        return {
            n: origin(step, n) + c * (right[n] - origin(step, n))
            for n, c in odd.items()
            if n in right
        }

    different = sorted(set(odd.values()))
    if moves and max(map(abs, different)) < FACTOR_TOLERANCE:  # of an update that is no number
        yield Hypothesis("frozen-parameters", predict, {"parameters": list(odd)}, 1)
        return
    detail: dict[str, Any] = {"tensors": list(odd)}
    detail["factor"] = different[0] if len(different) == 1 else list(odd.values())
    also: dict[str, Predict] = {"state": lambda step, rank: {}} if moves else {}
    yield Hypothesis("scaled-tensors", predict, detail, len(different), also)


def is_multiple(pairs: list[tuple[NDArray[Any], NDArray[Any]]], factor: float) -> bool:
    """Return whether found tensors are ``factor`` times the expected ones: this leaves less than 1
    % of the squared difference of all pairs (found, expected)."""
    gap = sum(float(np.square(a - factor * b).sum()) for a, b in pairs)
    size = sum(float(np.square(a - b).sum()) for a, b in pairs)
    return gap < 0.01 * size


def changed_gradients(
    largest: NamedArrays,
) -> Iterator[tuple[str, Callable[[NamedArrays], NamedArrays], Any]]:
    """Yield (cause, function of the gradient, details): functions of single elements or tensors.
    ``largest``: a recorded gradient, from which limits are read."""

    def map_tensors(
        change: Callable[[NDArray[Any]], NDArray[Any]],
    ) -> Callable[[NamedArrays], NamedArrays]:
        return lambda named: {n: change(a) for n, a in named.items()}

    def shrink(a: NDArray[Any], norm: float) -> NDArray[Any]:
        size = float(np.linalg.norm(a))
        return a * min(1.0, norm / size) if size else a

    def centred(a: NDArray[Any], axes: Any = None) -> NDArray[Any]:
        return a - a.mean(axis=axes, keepdims=True) if a.ndim > 1 else a

    functions: dict[str, Callable[[NDArray[Any]], NDArray[Any]]] = {
        "sign": np.sign,
        "absolute value": np.abs,
        "square": np.square,
        "normalised": lambda a: a / max(float(np.linalg.norm(a)), 1e-300),
        "centred": centred,
        "centred by row": lambda a: centred(a, tuple(range(1, a.ndim))),
    }
    for name, function in functions.items():
        yield "changed-gradient", map_tensors(function), {"function": name}
    whole: Callable[[NamedArrays], NamedArrays] = lambda named: {  # noqa: E731
        n: a / max(global_norm(named), 1e-300) for n, a in named.items()
    }
    yield "changed-gradient", whole, {"function": "normalised as a whole"}
    norm = max((float(np.linalg.norm(a)) for a in largest.values()), default=0.0)
    yield "clipped-tensors", map_tensors(lambda a: shrink(a, norm)), {"norm": norm}
    value = max((float(np.abs(a).max()) for a in largest.values() if a.size), default=0.0)
    yield "clipped-gradient", map_tensors(lambda a: np.clip(a, -value, value)), {"value": value}
    total = global_norm(largest)
    yield "clipped-gradient", lambda named: clip_by_norm(named, total), {"norm": total}


def gradient_functions(suspect: Observation) -> Iterator[Hypothesis]:
    """Yield the hypotheses that the recorded gradient is a function of the correct one."""
    for cause, change, detail in changed_gradients(suspect.recorded(*suspect.violations[0])):
        yield Hypothesis(
            cause,
            lambda s, r, f=change: f(suspect.expected(s, r)),
            detail,
            fitted_count=int("function" not in detail),
        )
