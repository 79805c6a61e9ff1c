"""Enumerate mutations for gradients that differ although the forward pass agrees."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from dualml.parity.causes.assessment import FITTED
from dualml.parity.causes.mutation import Mutation, MutationContext
from dualml.parity.causes.ratios import ONE_RATIO, Array, common_ratio, paired_arrays
from dualml.parity.causes.settings import setting_values
from dualml.parity.causes.tables import FORMS, OPERATOR_FUNCTIONS
from dualml.parity.models.comparison import ModelComparison
from dualml.parity.models.operations import Operation, call_number
from dualml.parity.models.trace import Trace
from dualml.parity.models.value_matching import TraceOperand

#: Function → setting → the power with which it multiplies the result.
FACTORS: Mapping[str, Mapping[str, int]] = {"mul": {"other": 1}, "div": {"other": -1}}
#: Largest number of values to which a gradient is rerouted.
MAX_REROUTED = 200
#: Stands for a value instead of a function, wherever some calls take it.
VALUE = "value"


def gradient_mutations(
    a: Trace, b: Trace, here: TraceOperand, comparison: ModelComparison, names: Mapping[str, str]
) -> list[Mutation]:
    """Return mutations that affect only gradients, for the first step at which gradients differ.

    They scale or clip all gradients, set ``padding_idx`` or ``scale_grad_by_freq`` of calls that a
    wrong gradient flows through, change the backward pass of any softmax or norm, undo a detach,
    scale calls that only give zeros (`unseen_scales`), cut edges (`edge_mutations`), or reroute a
    gradient (`rerouted_gradients`).

    Args:
        here: the operations of the first side.
        comparison: the comparison of the two traces.
        names: the second side's parameter names → the first side's, with the prefix ``parameter:``.
    """
    step = 1 if comparison.first is None else max(comparison.first.step, 1)
    rows = paired_arrays(a, b, "gradient", step, names)
    wrong = {t for s, phase, t in comparison.outside if (s, phase) == (step, "gradient")}
    candidates: list[Mutation] = []
    ratios = [c for name in wrong & set(rows) if (c := common_ratio(*rows[name])) is not None]
    if len(ratios) == len(rows) and ratios and np.ptp(ratios) < ONE_RATIO * abs(ratios[0]):
        candidates.append(Mutation("gradient", "optimizer", (), "", "gradient:scale", ratios[0]))
    # A gradient flows through a call to everything that the call depends on.
    before = value_ancestors(here.operations)
    for one in here.operations:
        if not wrong & parameter_names(before[one.number]):
            continue
        around = MutationContext((), (), {}, {}, ())
        for argument, old in one.attributes.items():
            if argument in ("padding_idx", "scale_grad_by_freq"):
                size = (
                    range(one.outputs[0][-1]) if argument == "padding_idx" and old is None else ()
                )
                values = (
                    list(size)
                    if old is None
                    else [None, *setting_values(argument, old, one, around)]
                )
                candidates += [
                    Mutation("attribute", "set", (one.number,), one.name, argument, v, old)
                    for v in values
                ]
    # Specific to MindSpore, see `softmax-gradient` in the catalogue.
    softmaxes = {len(o.outputs[0]): o for o in reversed(here.operations) if o.name == "softmax"}
    candidates += [
        Mutation("gradient", "form", (one.number,), one.name, "alone", True)
        for one in softmaxes.values()
    ]
    candidates += [
        Mutation("gradient", "form", (one.number,), one.name, form, True)
        for one in here.operations
        if one.name in FORMS and one.name.endswith("_norm")
        for form in ("detached_variance", "detached_mean", "detached")
    ]
    candidates += [
        Mutation("gradient", "attach", (one.number,), one.name)
        for one in here.operations
        if one.name in ("detach", "detach_")
    ]
    candidates += unseen_scales(here, before, wrong, ratios)
    return [
        *candidates,
        *edge_mutations(here.operations, before, wrong),
        *clipping_mutations(rows),
        *rerouted_gradients(here.operations, before, wrong),
    ]


def rerouted_gradients(
    operations: Sequence[Operation], before: Mapping[int | None, set[str]], wrong: set[str]
) -> list[Mutation]:
    """Return up to MAX_REROUTED mutations under which the gradient of a computed input of a call
    flows to another value of its shape instead, as behind a straight-through estimator x + (y −
    x).detach(), whose numbers are those of y. Only calls on which wrong gradients depend; the
    nearest values come first.

    Args:
        before: number of a call → all values it depends on.
        wrong: names of parameters whose gradients differ.
    """
    shapes = {
        name: shape
        for one in operations
        for name, shape in zip(one.output_names(), one.outputs, strict=False)
    }
    rows: list[tuple[int, Mutation]] = []
    for one in operations:
        if not wrong & parameter_names(before[one.number]):
            continue
        for at, given in enumerate(one.inputs):
            number = call_number(given)
            if number is None or given not in shapes:
                continue
            others = [
                name
                for name, shape in shapes.items()
                if shape == shapes[given]
                and name != given
                and (call_number(name) or 0) < one.number
                and parameter_names(before[call_number(name)])
            ]
            rows += [
                (
                    abs(number - (call_number(name) or 0)),
                    Mutation("gradient", "reroute", (one.number,), one.name, at, name, given),
                )
                for name in others
            ]
    rows.sort(key=lambda row: row[0])
    return [change for _, change in rows[:MAX_REROUTED]]


def unseen_scales(
    here: TraceOperand,
    before: Mapping[int | None, set[str]],
    wrong: set[str],
    ratios: Sequence[float],
) -> list[Mutation]:
    """Return mutations that scale calls that only give zeros and that all wrong gradients flow
    through, such as a low-rank adapter whose second matrix begins at zero: a factor there is seen
    in gradients alone. Empty unless all ratios are the same number other than 0.

    Args:
        before: number of a call → all values it depends on.
        wrong: names of parameters whose gradients differ.
        ratios: of these gradients, those of the other side to those of this side.
    """
    if not ratios or np.ptp(ratios) > ONE_RATIO * abs(ratios[0]) or not ratios[0]:
        return []
    ratio = float(f"{ratios[0]:.6g}")
    numbers: list[Mutation] = []
    outputs: list[Mutation] = []
    for one in here.operations:
        array = here.arrays.get(one.output_names()[0])
        if array is None or array.any() or not wrong <= parameter_names(before[one.number]):
            continue
        for argument, old in one.attributes.items():
            power = FACTORS.get(OPERATOR_FUNCTIONS.get(one.name, one.name), {}).get(argument)
            if power and isinstance(old, int | float) and not isinstance(old, bool):
                new = float(f"{old * ratio**power:.6g}")
                numbers.append(
                    Mutation("constant", "set", (one.number,), one.name, argument, new, old)
                )
        outputs.append(
            Mutation("constant", "output", (one.number,), one.name, "", ("scale", ratio), FITTED)
        )
    return [*numbers, *outputs]


def edge_mutations(
    operations: Sequence[Operation], before: Mapping[int | None, set[str]], wrong: set[str]
) -> list[Mutation]:
    """Return mutations that cut edges through which all wrong gradients flow.

    An edge is an input of a call, of all calls of a source line, a value that several calls take,
    or a call's output. Edges through which few gradients flow come first; the same input of the
    same calls counts once.

    Args:
        before: number of a call → all values it depends on.
        wrong: names of parameters whose gradients differ.
    """
    groups: dict[Any, tuple[list[int], set[str]]] = {}
    sites: Sequence[int]
    for one in operations:
        for at, given in enumerate(one.inputs):
            reached = parameter_names(before.get(call_number(given), set()) | {given})
            for key in ((one.number, at), (one.name, one.place, at)):
                sites, all_reached = groups.setdefault((*key, one.name, at), ([], set()))
                sites.append(one.number)
                all_reached |= reached
        groups[one.number, "", one.name, ""] = ([one.number], parameter_names(before[one.number]))
    for given, takers in shared_values(operations).items():
        reached = parameter_names(before.get(call_number(given), set()) | {given})
        for sites in prefixes_and_suffixes(takers):
            groups[given, sites, VALUE, given] = (list(sites), reached)
    rows = [
        (len(reached), len(sites), key, sites)
        for key, (sites, reached) in groups.items()
        if wrong <= reached
    ]
    rows.sort(key=lambda row: row[:2])
    unique = {(tuple(sites), key[-1]): key for _, _, key, sites in rows}
    return [
        Mutation("gradient", "cut", sites, "", at)
        if key[-2] == VALUE
        else Mutation("gradient", "detach", sites, key[-2], at)
        for (sites, at), key in unique.items()
    ]


def shared_values(operations: Sequence[Operation]) -> dict[str, list[int]]:
    """Return the computed values that several calls take, with the numbers of these calls;
    parameters and inputs are left out."""
    takers: dict[str, list[int]] = {}
    for one in operations:
        for given in dict.fromkeys(one.inputs):
            if given.startswith("op:"):
                takers.setdefault(given, []).append(one.number)
    return {name: numbers for name, numbers in takers.items() if len(numbers) > 1}


def prefixes_and_suffixes(takers: Sequence[int]) -> Iterator[tuple[int, ...]]:
    """Yield every prefix and suffix of the calls, and all of them: one function may use a value
    often."""
    for n in range(1, len(takers)):
        yield tuple(takers[:n])
        yield tuple(takers[n:])
    yield tuple(takers)


def parameter_names(names: Iterable[str]) -> set[str]:
    """Return the names among these that are parameters, without their prefix ``parameter:``."""
    return {n.removeprefix("parameter:") for n in names if n.startswith("parameter:")}


def clipping_mutations(rows: Mapping[str, tuple[Array, Array]]) -> list[Mutation]:
    """Return up to two mutations that clip the gradients before they are recorded: all together by
    the norm, and each element by the largest absolute value, that the other side's gradients have.
    A norm or value of 0 is left out.

    Args:
        rows: parameter → gradients of this side and of the other.
    """
    candidates = []
    largest = max((float(np.abs(y).max(initial=0)) for _, y in rows.values()), default=0.0)
    norm = float(np.sqrt(sum(float((y.astype(np.float64) ** 2).sum()) for _, y in rows.values())))
    for word, value in (("gradient:norm", norm), ("gradient:clamp", largest)):
        if value:
            candidates.append(
                Mutation("gradient", "optimizer", (), "", word, float(f"{value:.4g}"))
            )
    return candidates


def value_ancestors(operations: Sequence[Operation]) -> dict[int | None, set[str]]:
    """Map the number of each call to the names of all values that it depends on, also
    indirectly."""
    rows: dict[int | None, set[str]] = {}
    for one in operations:
        names = set(one.inputs)
        for given in one.inputs:
            names |= rows.get(call_number(given), set())
        rows[one.number] = names
    return rows
