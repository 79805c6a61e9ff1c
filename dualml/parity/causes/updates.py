"""Enumerate mutations for updates or states that differ although gradients agree."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from dualml.parity.causes.mutation import Mutation, MutationContext
from dualml.parity.causes.ratios import (
    Array,
    common_ratio,
    is_plausible_factor,
    paired_arrays,
    weight_before,
)
from dualml.parity.causes.settings import setting_values
from dualml.parity.causes.tables import GRADIENT_LIMITS, OPTIMIZER_FORMS, OPTIMIZER_SETTINGS
from dualml.parity.models.comparison import ModelComparison
from dualml.parity.models.trace import Trace

#: A difference is tried as a multiple of the weights if at most this share of it is not one; whole
#: runs decide.
UNEXPLAINED = 0.5
#: Names of parameters; None means all of them.
Scope = tuple[str, ...] | None
Moves = Mapping[str, tuple[Array, Array]]


def update_mutations(
    a: Trace,
    b: Trace,
    comparison: ModelComparison,
    groups: Sequence[Mapping[str, Any]],
    names: Mapping[str, str],
) -> list[Mutation]:
    """Return mutations of the optimizer's settings and rule, for all parameters and for some.

    Settings of operations that keep a state, such as batch norm, are included if the difference
    begins in a buffer.

    Args:
        a, b: the traces of the side that is mutated and of the other side.
        groups: settings of each parameter group, see `Explorer.optimizer_groups`.
        names: the second side's parameter names → the first side's.
    """
    candidates = [*exchanged_groups(groups), *other_defaults(groups)]
    first = comparison.first
    step = 1 if first is None else max(first.step, 1)
    if first is not None and first.phase == "state" and first.tensor.startswith("buffer/"):
        candidates += buffer_mutations(a, b, first.tensor) + constant_replacements(a, b)
    rows = paired_arrays(a, b, "update", step, names)
    before = {n: v for n in rows if (v := weight_before(a, step, n)) is not None}
    moves = {n: (rows[n][0] - before[n], rows[n][1] - before[n]) for n in before}
    still = tuple(n for n, (x, y) in moves.items() if x.any() and not y.any())
    if still:
        candidates += [
            make_mutation(word, True, still, kind="parameters") for word in ("skip", "hold")
        ]
    if groups:
        candidates += decay_mutations(a, b, groups[0], names)
    candidates += custom_number_mutations(groups)
    outside = {t for s, phase, t in comparison.outside if (s, phase) == (step, "update")}
    candidates += [
        make_mutation(f"gradient:clip_{way}", True, None)
        for way in ("each", "none", "value", "squared")
    ]
    candidates += [make_mutation("gradient:clip_limit", v, None) for v in GRADIENT_LIMITS["norm"]]
    candidates += [make_mutation("gradient:clip_eps", v, None) for v in OPTIMIZER_SETTINGS["eps"]]
    candidates.append(make_mutation("gradient:alone", True, None))
    for scope in parameter_scopes(moves, outside, groups):
        candidates += factor_mutations(moves, scope, step)
        for group in groups[:1] if scope is None else groups[:2]:
            candidates += group_mutations(group, groups, scope)
        candidates += [
            make_mutation(f"gradient:{word}", v, scope)
            for word, values in GRADIENT_LIMITS.items()
            for v in values
        ]
        candidates += [
            make_mutation(word, True, scope)
            for word in ("gradient:centralize", "gradient:sign", "twice")
        ]
    return candidates


def exchanged_groups(groups: Sequence[Mapping[str, Any]]) -> list[Mutation]:
    """Return mutations that exchange a setting of the two groups of an optimizer, as an inverted
    condition does: of those with and without weight decay, or with two learning rates. Empty unless
    there are exactly two groups."""
    if len(groups) != 2:
        return []
    a, b = groups
    names = [name for name in ("lr", *OPTIMIZER_SETTINGS) if name in a and name in b]
    return [
        make_mutation(f"exchange:{name}", (a[name], b[name]), tuple(a["names"]))
        for name in names
        if a[name] != b[name]
    ]


def other_defaults(groups: Sequence[Mapping[str, Any]]) -> list[Mutation]:
    """Return mutations to forms of a rule that are the default elsewhere: Adagrad's accumulator
    begins with 0.1 in MindSpore and TensorFlow. Empty for other rules."""
    form = str(groups[0].get("form")) if groups else ""
    return [make_mutation("form:from_tenth", True, None)] if form == "adagrad" else []


def make_mutation(
    argument: str, value: Any, scope: Scope, old: Any = None, kind: str = "optimizer"
) -> Mutation:
    """Return a mutation of the optimizer for the parameters in ``scope``; None: for all.

    The mutation holds ``scope`` in its field ``old``, and ``old`` as text in ``operation``.
    """
    return Mutation(kind, "optimizer", (), str(old), argument, value, scope)


def parameter_scopes(
    moves: Moves, outside: set[str], groups: Sequence[Mapping[str, Any]]
) -> list[Scope]:
    """Return the sets of parameters to try, None for all: those that differ, all, vectors (fewer
    than two axes), matrices (all others), and several optimizer groups.

    Args:
        moves: parameter → its change in an update, on this side and on the other.
        outside: names of the parameters that differ after the update.
    """
    wrong = tuple(n for n in moves if n in outside)
    vectors = tuple(n for n, (x, _) in moves.items() if x.ndim < 2)
    matrices = tuple(n for n in moves if n not in vectors)
    chosen: list[Scope] = [wrong] if wrong and len(wrong) < len(moves) else []
    chosen += [None, *(s for s in (vectors, matrices) if s)]
    chosen += [tuple(g["names"]) for g in groups if len(groups) > 1]
    return list(dict.fromkeys(chosen))


def custom_number_mutations(groups: Sequence[Mapping[str, Any]]) -> list[Mutation]:
    """Return mutations of numbers that a user's optimizer class keeps beside its parameter groups.

    Examples are a limit, a peak or a number of warm-up steps.
    """
    candidates = []
    for name, value in (groups[0]["own"] if groups else {}).items():
        near = (2 * value, value / 2, value * 10, value / 10, -value, value + 1, value - 1)
        others = {float("inf"), 0.0, 1.0, not value, *near} - {value}
        candidates += [
            make_mutation(f"own:{name}", v, None, value) for v in sorted(others, key=float)
        ]
    return candidates


def factor_mutations(moves: Moves, scope: Scope, step: int) -> list[Mutation]:
    """Return mutations that scale gradients or learning rate by the one factor between all weight
    updates of ``scope``; empty if there is none; the learning rate only by a factor that people
    would choose.

    Args:
        moves: parameter → its change in update ``step``, on this side and on the other.
    """
    chosen = [moves[n] for n in (scope or moves) if n in moves]
    ratios = [c for x, y in chosen if (c := common_ratio(x, y)) is not None]
    if not ratios or len(ratios) < len(chosen) or np.ptp(ratios) >= 1e-2 * abs(ratios[0]):
        return []
    factor = float(f"{np.median(ratios):.9g}")
    candidates = [make_mutation("gradient:scale", factor, scope)]
    if is_plausible_factor(factor):
        candidates.insert(0, make_mutation("lr_factor", factor, scope))
    if is_plausible_factor(factor) and step > 1:
        candidates.append(make_mutation("lr_schedule", tuple([1.0] * (step - 1) + [factor]), scope))
    return candidates


def decay_mutations(
    a: Trace, b: Trace, group: Mapping[str, Any], names: Mapping[str, str]
) -> list[Mutation]:
    """Return mutations to another weight decay, estimated from the first update; empty if no decay
    above 0 fits.

    In p − lr·(g + λ·p) with equal g the two sides differ by a multiple of the weights. Later
    updates also have the decay in their state.
    """
    rate, old = group.get("lr"), group.get("weight_decay")
    if not isinstance(rate, int | float) or not isinstance(old, int | float) or not rate:
        return []
    start, rows = a.initial_parameters(), paired_arrays(a, b, "update", 1, names)
    shared = [n for n in rows if n in start and start[n].any()]
    if not shared:
        return []
    before = np.concatenate([start[n].ravel().astype(np.float64) for n in shared])
    apart = np.concatenate([(rows[n][1].astype(np.float64) - rows[n][0]).ravel() for n in shared])
    shrink = float(apart @ before) / float(before @ before)
    if not np.linalg.norm(apart - shrink * before) <= UNEXPLAINED * np.linalg.norm(apart):
        return []
    decay = old - shrink / rate
    values = dict.fromkeys(float(f"{decay:.{digits}g}") for digits in (1, 2, 3))
    return [make_mutation("weight_decay", value, None, old) for value in values if value > 0]


def group_mutations(
    group: Mapping[str, Any], groups: Sequence[Mapping[str, Any]], scope: Scope
) -> list[Mutation]:
    """Return mutations of the settings, flags and rule variants of one parameter group."""
    candidates = []
    for name, values in (*OPTIMIZER_SETTINGS.items(), ("lr", ())):
        if name in group:
            others = dict.fromkeys([*values, *(g[name] for g in groups if name in g)])
            candidates += [
                make_mutation(name, v, scope, group[name]) for v in others if v != group[name]
            ]
    flags = [name for name, value in group.items() if isinstance(value, bool)]
    candidates += [make_mutation(flag, not group[flag], scope, group[flag]) for flag in flags]
    if group.get("weight_decay"):
        candidates += [
            make_mutation(word, group["weight_decay"], scope)
            for word in ("decay:coupled", "decay:after")
        ]
    forms = OPTIMIZER_FORMS.get(str(group.get("form")), ())
    return candidates + [make_mutation(f"form:{form}", True, scope) for form in forms]


def constant_replacements(a: Trace, b: Trace) -> list[Mutation]:
    """Return mutations that replace a float setting of the first side, wherever it occurs, by one
    of the second; 0 and 1 are left out."""
    ours, theirs = (
        {
            v
            for one in side.operations
            for v in one.attributes.values()
            if isinstance(v, float) and v not in (0.0, 1.0)
        }
        for side in (a, b)
    )
    return [
        Mutation("constant", "everywhere", (), "", old, new, old)
        for old in sorted(ours)
        for new in sorted(theirs - {1 - v for v in ours})
        if new != old
    ]


def buffer_mutations(a: Trace, b: Trace, buffer: str) -> list[Mutation]:
    """Return mutations of how operations such as batch norm update their state: how fast, whether
    at all, how often.

    Operations that own the first differing buffer come first.

    Args:
        buffer: name of that buffer, with the prefix ``buffer/``.
    """
    theirs = {v for one in b.operations for v in one.attributes.values() if isinstance(v, float)}
    numbers = sorted({*theirs, *(1 - v for v in theirs)})  # factor of the old or new value
    around = MutationContext(tuple(numbers), (), {}, {}, ())
    keeping = [one for one in a.operations if {"momentum", "use_input_stats"} & set(one.attributes)]
    keeping.sort(key=lambda one: not buffer.startswith(f"buffer/{one.module}."))
    candidates: dict[tuple[str, str, Any, Any], Mutation] = {}
    for one in keeping:
        if one.name == "batch_norm":
            for kind, word in (("attribute", "unbiased_state"), ("extra", "twice_state")):
                form = Mutation(kind, "form", (one.number,), one.name, word, False)
                candidates.setdefault((one.name, word, None, None), form)
        for argument, old in one.attributes.items():
            if argument in ("momentum", "training", "use_input_stats"):
                for v in setting_values(argument, old, one, around):
                    change = Mutation("attribute", "set", (one.number,), one.name, argument, v, old)
                    candidates.setdefault((one.name, argument, old, v), change)
    return list(candidates.values())
