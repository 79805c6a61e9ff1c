"""Tensor parallel layers with typical mistakes as options, in NumPy."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from dualml.course.exercise import RIGHT, Arrays, Flags
from dualml.course.places import flags_at

Number = type[np.floating[Any]]
Tensors = list[Any]
#: Ending of a mistake, after ``column_`` or ``row_`` → the indices that rank r of n takes, each of
#: ``each``.
PART_INDICES: Mapping[str, Callable[[int, int, int], Any]] = {
    "reversed": lambda r, n, each: (n - 1 - r) * each + np.arange(each),
    "shifted": lambda r, n, each: (r - 1) % n * each + np.arange(each),
    "shifted#2": lambda r, n, each: (r + 1) % n * each + np.arange(each),
    "first_part": lambda r, n, each: np.arange(each),
    "strided": lambda r, n, each: r + n * np.arange(each),
    "overlapping": lambda r, n, each: r + np.arange(each),
}
#: Ending of a mistake, after ``column_gradient_`` or ``row_`` → what a rank makes of all ranks'
#: terms instead of their sum; ``r`` is its number.
COMBINED_TERMS: Mapping[str, Callable[[Tensors, int], Any]] = {
    "local": lambda terms, r: terms[r],
    "not_reduced": lambda terms, r: terms[r],
    "root": lambda terms, r: terms[0],
    "mean": lambda terms, r: sum(terms) / len(terms),
    "twice": lambda terms, r: sum(terms) * len(terms),
    "gathered": lambda terms, r: np.concatenate(terms, 1),
    "gathered#2": lambda terms, r: np.concatenate(terms, 0),
    "maximum": lambda terms, r: np.max(terms, axis=0),
    "maximum#2": lambda terms, r: np.min(terms, axis=0),
    "maximum#3": lambda terms, r: np.prod(terms, axis=0),
}
#: Ending of a mistake, after ``column_output_`` or ``row_gradient_`` → what a rank makes of a part
#: that stays its own.
MERGED_PARTS: Mapping[str, Callable[[Tensors, int], Any]] = {
    "reduced": lambda parts, r: sum(parts),
    "reduced#2": lambda parts, r: sum(parts) / len(parts),
    "divided": lambda parts, r: parts[r] / len(parts),
    "gathered": lambda parts, r: np.concatenate(parts, 1),
    "gathered#2": lambda parts, r: np.concatenate(parts, 0),
    "gathered#3": lambda parts, r: np.concatenate(parts[::-1], 1),
}


def part_of(length: int, n: int, rank: int, prefix: str, f: Flags) -> Any:
    """Return the indices of ``length`` features that ``rank`` of ``n`` takes, a slice or an array:
    its part in the order of ranks, or another by a mistake among ``f`` that begins with
    ``prefix``."""
    each = length // n
    right: Any = slice(rank * each, (rank + 1) * each)
    return next(
        (take(rank, n, each) for s, take in PART_INDICES.items() if f"{prefix}{s}" in f), right
    )


def parts_of(length: int, flags: Sequence[Flags], prefix: str, parameter: int) -> Tensors:
    """Return every rank's indices (`part_of`) of ``length`` features of the weight (``parameter``
    0) or the bias (1); ``flags`` are the mistakes of each rank."""
    n = len(flags)
    narrowed = [flags_at(f, parameter=(parameter, 2)) for f in flags]
    return [part_of(length, n, r, prefix, f) for r, f in enumerate(narrowed)]


def apply_mistake(
    mistaken: Mapping[str, Callable[[Tensors, int], Any]],
    prefix: str,
    each: Tensors,
    rank: int,
    f: Flags,
    right: Any,
) -> Any:
    """Return what the first of the mistakes ``mistaken`` (ending of a name → function of every
    rank's arrays and of the rank) that is among ``f``, after ``prefix``, makes of the arrays
    ``each``; ``right`` if there is none."""
    return next((make(each, rank) for s, make in mistaken.items() if f"{prefix}{s}" in f), right)


def narrow_by_rank(flags: Flags, n: int) -> list[Flags]:
    """Return the mistakes that act on each of ``n`` ranks."""
    return [flags_at(flags, rank=(r, n)) for r in range(n)]


def received_inputs_and_gradients(
    ranks: Sequence[Arrays], flags: Sequence[Flags], number: Number
) -> tuple[Tensors, Tensors]:
    """Return all ranks' inputs ``x``, and all ranks' gradients ``g`` of the loss by the output, in
    the dtype ``number``: each rank's own, unless its mistakes replace it by the sum or mean of
    all."""
    xs, gs = ([a[name].astype(number) for a in ranks] for name in ("x", "g"))
    return (
        combine_incoming("incoming_input_reduced", xs, flags),
        combine_incoming("incoming_gradient_reduced", gs, flags),
    )


def combine_incoming(name: str, every: Tensors, flags: Sequence[Flags]) -> Tensors:
    """Return on each rank its own array, or with the mistake ``name`` the sum of all, and with its
    second form the mean."""
    total = sum(every)
    mean = total / len(every)
    return [
        total if name in f else mean if f"{name}#2" in f else own
        for own, f in zip(every, flags, strict=True)
    ]


def column_layer(
    options: Mapping[str, Any],
    ranks: Sequence[Arrays],
    f: Flags = RIGHT,
    number: Number = np.float64,
) -> list[dict[str, Any]]:
    """Compute the results of a layer whose output features are split over the ranks, on every rank:
    the output ``y``, the input's gradient ``x``, and the gradients ``weight`` and ``bias``."""
    flags = narrow_by_rank(f, len(ranks))
    w, b = ranks[0]["w"].astype(number), ranks[0]["b"].astype(number)
    xs, gs = received_inputs_and_gradients(ranks, flags, number)
    rows = parts_of(len(w), flags, "column_", 0)
    own = parts_of(len(w), flags, "column_", 1)
    terms = [g @ w[s] for g, s in zip(gs, rows, strict=True)]
    ys = []
    for r, here in enumerate(flags):
        bias = 0 if "column_bias_missing" in here else b[own[r]]
        ys.append(xs[r] @ w[rows[r]].T + (2 * bias if "column_bias_twice" in here else bias))
    slopes = parameter_gradients(gs, xs, flags)
    return [
        {
            "y": apply_mistake(MERGED_PARTS, "column_output_", ys, r, here, ys[r]),
            "x": apply_mistake(COMBINED_TERMS, "column_gradient_", terms, r, here, sum(terms)),
            **slopes[r],
        }
        for r, here in enumerate(flags)
    ]


def row_layer(
    options: Mapping[str, Any],
    ranks: Sequence[Arrays],
    f: Flags = RIGHT,
    number: Number = np.float64,
) -> list[dict[str, Any]]:
    """Compute the results of a layer whose input features are split over the ranks, on every rank:
    the output ``y``, the input's gradient ``x``, and the gradients ``weight`` and ``bias``."""
    n, flags = len(ranks), narrow_by_rank(f, len(ranks))
    w, b = ranks[0]["w"].astype(number), ranks[0]["b"].astype(number)
    xs, gs = received_inputs_and_gradients(ranks, flags, number)
    columns = parts_of(w.shape[1], flags, "row_", 0)
    within = [b if "row_bias_every_rank" in here else b * 0 for here in flags]
    terms = [x @ w[:, s].T + i for x, s, i in zip(xs, columns, within, strict=True)]
    backs = [g @ w[:, s] for g, s in zip(gs, columns, strict=True)]
    slopes = parameter_gradients(gs, xs, flags)
    times = {
        "row_bias_every_rank": number(0),
        "row_bias_missing": number(0),
        "row_bias_twice": number(2),
        "row_bias_divided": number(1) / number(n),
    }
    out = []
    for r, here in enumerate(flags):
        bias = next((t * b for flag, t in times.items() if flag in here), b)
        gathered = "row_gathered" in here or "row_gathered#2" in here
        own = [t + b for t in terms] if gathered else terms
        total = apply_mistake(COMBINED_TERMS, "row_", own, r, here, sum(terms))
        y = total if gathered else total + bias
        y = y / number(n) if "row_mean#2" in here else y
        back = apply_mistake(MERGED_PARTS, "row_gradient_", backs, r, here, backs[r])
        out.append({"y": y, "x": back, **slopes[r]})
    return out


def parameter_gradients(gs: Tensors, xs: Tensors, flags: Sequence[Flags]) -> list[dict[str, Any]]:
    """Return on each rank the gradients ``weight`` and ``bias``, computed from its output gradient
    and its input, which need no other rank."""
    weights, biases = [g.T @ x for g, x in zip(gs, xs, strict=True)], [g.sum(0) for g in gs]
    return [
        {
            "weight": weight_gradient(weights, len(xs[r]), r, f),
            "bias": bias_gradient(biases, gs[r], r, f),
        }
        for r, f in enumerate(flags)
    ]


def weight_gradient(every: Tensors, samples: int, rank: int, f: Flags) -> Any:
    """Return the gradient of the weight that a rank makes of every rank's own, as the mistakes
    change it."""
    own = every[rank]
    mistaken: Mapping[str, Callable[[], Any]] = {
        "weight_gradient_mean": lambda: own / samples,
        "weight_gradient_reduced": lambda: sum(every),
        "weight_gradient_reduced#2": lambda: sum(every) / len(every),
        "weight_gradient_divided": lambda: own / len(every),
        "weight_gradient_multiplied": lambda: own * len(every),
        "weight_gradient_transposed": lambda: own.T,
        "weight_gradient_zero": lambda: own * 0,
    }
    return next((make() for name, make in mistaken.items() if name in f), own)


def bias_gradient(every: Tensors, g: Any, rank: int, f: Flags) -> Any:
    """Return the gradient of the bias that a rank makes of every rank's own, as the mistakes change
    it; ``g`` is its output gradient."""
    own = every[rank]
    mistaken: Mapping[str, Callable[[], Any]] = {
        "bias_gradient_mean": lambda: own / len(g),
        "bias_gradient_reduced": lambda: sum(every),
        "bias_gradient_reduced#2": lambda: sum(every) / len(every),
        "bias_gradient_divided": lambda: own / len(every),
        "bias_gradient_axis": lambda: g.sum(1),
        "bias_gradient_axis#2": lambda: g.sum(0, keepdims=True),
        "bias_gradient_axis#3": lambda: g.sum(1, keepdims=True),
        "bias_gradient_axis#4": lambda: g.sum(),
        "bias_gradient_axis#5": lambda: g,
        "bias_gradient_axis#6": lambda: g.mean(1),
        "bias_gradient_axis#7": lambda: g[0],
    }
    return next((make() for name, make in mistaken.items() if name in f), own)
