"""Enumerate other values for one setting of an operation."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import combinations, permutations
from math import sqrt
from typing import Any

from dualml.parity.causes.mutation import MutationContext
from dualml.parity.causes.tables import (
    AXES,
    EPSILONS,
    FILLS,
    FRACTIONS,
    OPERATOR_FUNCTIONS,
    REDUCTIONS,
    SLOPES,
    UNSET,
    WORDS,
)
from dualml.parity.models.operations import Operation

#: Settings that are numbers from 0 to 1 in every operation.
PROBABILITIES = ("dropout_p", "label_smoothing")
#: Largest factor by which a setting may extend an axis.
MAX_AXIS_FACTOR = 8


def setting_values(
    argument: str, old: Any, operation: Operation, context: MutationContext
) -> list[Any]:
    """Return other values to try for a setting, likely ones first; never the current one.

    Args:
        argument: name of the setting.
        old: its current value; None if it is unset.
    """
    values: list[Any] = []
    if isinstance(old, bool):
        values = [not old]
    elif argument == "stride" and old in (None, []):  # the default is the window size
        values = [1, 2, 3]
    elif old is None:
        values = list(UNSET.get(argument, ()))
        if argument == "scale":
            values = [1.0, *scale_factors(context)]
    elif isinstance(old, int):
        if argument in AXES:
            rank = max([len(shape) for shape in operation.outputs] + [1]) + 1
            values = list(range(-rank, rank))
            if (
                argument == "dim"
                and OPERATOR_FUNCTIONS.get(operation.name, operation.name) in REDUCTIONS
            ):
                values += axis_subsets(rank)
        else:
            values = [old + 1, old - 1, 2 * old, old // 2, 0, 1, 2, -1, old + 2, 3]
            values += [int(n) for n in context.numbers if n == int(n) and abs(n) < 4096]
            values += (
                [float(c) for c in scale_factors(context)] if argument in ("other", "alpha") else []
            )
    elif isinstance(old, float):
        near = [n for n in context.numbers if n != old]
        made = [n for n in near if abs(n) not in (0.0, 1.0)][:8]
        near += [c for a, b in permutations(made, 2) for c in (a / b, a * b)]
        if "eps" in argument:
            values = [*context.epsilons, *near, *EPSILONS]
        elif argument == "negative_slope":
            values = [*near, *SLOPES]
        elif argument in ("value", "min", "max", "fill_value"):
            values = [*near, *FILLS, old + 1, -old]
        elif argument in ("momentum", "label_smoothing", "alpha", "beta", "p", "dropout_p"):
            values = [*near, 1 - old, *FRACTIONS]
        else:
            values = [*near, 1.0, -old, old * old, sqrt(abs(old)), 2 * old, old / 2, 1 - old, 0.0]
            values += [1 / old] if old else []
            values += scale_factors(context)
    elif isinstance(old, str):
        values = list(WORDS.get(argument, ()))
        if argument in ("equation", "argument 0") and "->" in old:
            values = einsum_variants(old)
        if old.lstrip("-").replace(".", "").isdigit() or old in ("inf", "-inf"):
            values = list(FILLS)
    elif isinstance(old, list) and old and all(isinstance(n, int) for n in old):
        values = list_variants(argument, old)
        if argument == "dim":
            values += axis_subsets(max([len(shape) for shape in operation.outputs] + [1]) + 2)
    if is_probability(argument, operation):
        values = [value for value in values if 0 <= value <= 1]
    if argument in ("scale_factor", "repeats"):  # larger ones only cost memory
        values = [v for v in values if not isinstance(v, int | float) or 0 < v <= MAX_AXIS_FACTOR]
    seen: list[Any] = []
    for value in values:
        if value != old and not any(value == s and type(value) is type(s) for s in seen):
            seen.append(value)
    return seen


def is_probability(argument: str, one: Operation) -> bool:
    """Return whether a setting can only be a number from 0 to 1, judged by its name and, for ``p``,
    by the function (a Dropout)."""
    return argument in PROBABILITIES or (argument == "p" and "dropout" in one.name)


def scale_factors(around: MutationContext) -> list[float]:
    """Return factors that people forget: 0.5, 2, −1, and those from axis lengths and from numbers
    the other side used; without 0 and 1."""
    values = [0.5, 2.0, -1.0, *around.numbers]
    values += [1 / n for n in around.numbers if n and abs(n) < 1e6]
    for n in around.sizes:
        values += [1 / n, float(n), 1 / sqrt(n), sqrt(n)]
    return [v for v in dict.fromkeys(values) if v not in (0.0, 1.0) and abs(v) < 1e12]


def axis_subsets(rank: int) -> list[list[int]]:
    """Return every set of one to three of the first ``rank`` axes, of the first five at most, as
    lists: axes that could be reduced together."""
    return [list(axes) for n in (1, 2, 3) for axes in combinations(range(min(rank, 5)), n)]


def list_variants(argument: str, old: list[int]) -> list[Any]:
    """Return variants of a list of integers: reordered, shifted as a whole or in one element,
    constant; for ``padding`` also ``same`` and ``valid``, for ``dim`` single axes. The list itself
    may be among them."""
    values: list[Any] = []
    if 1 < len(old) <= 5:
        values += [list(order) for order in permutations(old)]
    for step in (-1, 1, 2, -2):
        values.append([n + step for n in old])
        values += [[n + step * (i == at) for i, n in enumerate(old)] for at in range(len(old))]
    if argument == "padding" and len(old) <= 2:
        values += ["same", "valid"]
    if argument == "dim":
        values += [[at] for at in range(4)]
    if argument == "pad" and len(old) % 2 == 0:
        values += [[old[i + 1 - 2 * (i % 2)] for i in range(len(old))]]
    values += [[1] * len(old), [2] * len(old), [0] * len(old)]
    return values


def einsum_variants(old: str) -> list[str]:
    """Return einsum equations with the letters of one term, or of the result, reordered; the
    equation itself is among them."""
    terms, _, result = old.replace(" ", "").partition("->")
    parts = [*terms.split(","), result]
    values = []
    for at, part in enumerate(parts):
        if 1 < len(part) <= 4 and part.isalpha():
            for order in permutations(part):
                changed = [*parts[:at], "".join(order), *parts[at + 1 :]]
                values.append(",".join(changed[:-1]) + "->" + changed[-1])
    return values


def joint_settings(
    name: str, attributes: Mapping[str, Any]
) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """Yield (old values, new values), each ``{"dilation": …, "padding": …}``, for other dilations
    of a convolution, with the padding that follows them; of several axes the first counts. Nothing
    for other functions, or if the padding is text, 0 or unset, or the dilation is unset."""
    dilation, padding = attributes.get("dilation"), attributes.get("padding")
    if "conv" not in name or isinstance(padding, str) or not dilation or not padding:
        return
    old = first_element(dilation), first_element(padding)
    if not all(old):
        return
    for other in dict.fromkeys((1, 2, 3, 4, old[0] - 1, old[0] + 1, 2 * old[0], old[0] // 2)):
        if 0 < other != old[0] and old[1] * other % old[0] == 0:
            kept = old[1] * other // old[0]
            yield {"dilation": old[0], "padding": old[1]}, {"dilation": other, "padding": kept}


def first_element(value: Any) -> int:
    """Return the value, or the first element of a sequence, as an integer."""
    return int(value[0] if isinstance(value, list | tuple) else value)
