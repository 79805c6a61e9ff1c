"""Find the changes of a rule's lines that compute what a backend recorded, update by update."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import NamedTuple

import numpy as np

from dualml.algorithms.optim import OptimizerSpec
from dualml.common.array_types import Array
from dualml.parity.finder.lines.mutations import Mutant, mutants
from dualml.parity.finder.lines.program import UpdateParam, compile_program, read_program

#: Changed rules that are changed a second time.
BEAM = 12
#: Changes of one rule that are tried; an update of eight lines has about 1,200, and their number
#: grows with the square of the lines.
MAX_MUTANTS = 5_000
#: Changes that are reported, if they compute different things and the records fit all of them.
MAX_PROGRAMS = 6
#: Errors of a changed rule that makes no sense.
UNCOMPUTABLE = (ArithmeticError, AttributeError, LookupError, NameError, TypeError, ValueError)
#: Elements of each tensor on which a changed rule is tried first.
ELEMENTS = 40


class RecordedUpdate(NamedTuple):
    """One recorded update, a few elements of every tensor in one vector each.

    Attributes:
        p, g, s: weights, gradient and optimizer state before it.
        step, lr: its number and learning rate.
        after: ``update`` and the state's keys → what was recorded after it.
        limits: the same keys → largest root mean square of each tensor's rounding, per element.
        starts: first element of each tensor.
    """

    p: Array
    g: Array
    s: dict[str, Array]
    step: int
    lr: float
    after: dict[str, Array]
    limits: dict[str, Array]
    starts: Array


class TriedProgram(NamedTuple):
    """A changed rule, and what it explains.

    Attributes:
        explained: keys of `RecordedUpdate.after` that it computes in every update, to rounding.
        error: how far it is from the records in multiples of rounding, over all keys, as a
            logarithm.
    """

    tree: ast.FunctionDef
    cost: int
    explained: frozenset[str]
    error: float


def matching_changes(
    rule: OptimizerSpec, updates: Sequence[RecordedUpdate], scheduled: bool, twice: bool
) -> Iterator[tuple[ast.FunctionDef, int]]:
    """Yield (program, cost) of up to MAX_PROGRAMS rules with one change, or ``twice`` with two,
    with which every recorded update is what was recorded; the least unusual first. Nothing if the
    rule itself explains the updates, or has no such source.

    Args:
        scheduled: whether the learning rate changes over the updates.
    """
    right = read_program(rule)
    if right is None or not updates:
        return
    keys = frozenset(updates[0].after)
    own = try_change(Mutant(right, 0), rule, updates)
    if own is None or own.explained == keys:
        return
    once = try_all(own, rule, updates, scheduled)
    found = [one for one in once if one.explained == keys and not twice]
    if twice:
        halfway = [one for one in once if own.explained < one.explained]
        nearer = distinct(sorted(halfway or once, key=closeness)[: 3 * BEAM], rule)
        for one in nearer[: BEAM if halfway else BEAM // 3]:
            again = try_all(one, rule, updates, scheduled, whole=True)
            found += [two._replace(cost=two.cost + 3) for two in again]
    for one in distinct(sorted(found, key=lambda one: one.cost), rule)[:MAX_PROGRAMS]:
        yield one.tree, one.cost


def closeness(one: TriedProgram) -> tuple[float, ...]:
    """Return the sort key of changed rules, the nearest to the records first."""
    return -len(one.explained), one.error, one.cost


def try_all(
    base: TriedProgram,
    rule: OptimizerSpec,
    updates: Sequence[RecordedUpdate],
    scheduled: bool,
    whole: bool = False,
) -> list[TriedProgram]:
    """Return the changes of ``base`` that explain what it explains and come nearer to the records;
    with ``whole`` only those that explain all records."""
    tried = (
        try_change(mutant._replace(cost=mutant.cost + base.cost), rule, updates, whole)
        for mutant in islice(mutants(base.tree, rule, scheduled), MAX_MUTANTS)
    )
    return [
        one
        for one in tried
        if one is not None and one.explained >= base.explained and one.error < base.error
    ]


def try_change(
    mutant: Mutant, rule: OptimizerSpec, updates: Sequence[RecordedUpdate], whole: bool = False
) -> TriedProgram | None:
    """Return what a changed rule explains; None if it cannot be computed or, with ``whole``, if it
    does not explain all records."""
    ratios = []
    try:
        update = compile_program(mutant.tree, rule)
        with np.errstate(all="ignore"):
            for one in updates[::-1]:  # the later ones tell more: their state is not zero
                ratios.append(rounding_ratios(update, rule, one))
                if whole and max(ratios[-1].values()) > 1:
                    return None
    except UNCOMPUTABLE:
        return None
    worst = {key: max(one[key] for one in ratios) for key in ratios[0]}
    explained = frozenset(key for key, ratio in worst.items() if ratio <= 1)
    error = sum(float(np.log1p(max(ratio, 1.0))) for ratio in worst.values())
    return TriedProgram(mutant.tree, mutant.cost, explained, error)


def distinct(changed: Sequence[TriedProgram], rule: OptimizerSpec) -> list[TriedProgram]:
    """Return the changed rules, in their order, without those that compute the same as an earlier
    one, and without those that cannot be computed."""
    first: dict[bytes, TriedProgram] = {}
    for one in changed:
        try:
            with np.errstate(all="ignore"):
                first.setdefault(fingerprint(compile_program(one.tree, rule), rule), one)
        except UNCOMPUTABLE:
            continue
    return list(first.values())


def rounding_ratios(
    update: UpdateParam, rule: OptimizerSpec, one: RecordedUpdate
) -> dict[str, float]:
    """Return how far a rule's result is from a recorded update: key → the largest root mean square
    difference of a tensor in multiples of its limit."""
    new, state = update(rule, one.p, one.g, one.s, one.step, one.lr)
    told, ratios = {"update": new, **state}, {}
    for key, seen in one.after.items():
        gap = np.broadcast_to(np.asarray(told[key], np.float64), seen.shape) - seen
        sizes = np.diff([*one.starts, len(seen)])
        mean = np.sqrt(np.add.reduceat(gap * gap, one.starts) / sizes)
        worst = float((mean / one.limits[key]).max())
        ratios[key] = worst if np.isfinite(worst) else 1e30
    return ratios


def fingerprint(update: UpdateParam, rule: OptimizerSpec) -> bytes:
    """Return a digest of what a rule computes from random tensors in a few updates."""
    draw, told = np.random.default_rng(0), []
    for step in (1, 2, 5):
        p, g, *states = draw.normal(size=(2 + len(rule.state_keys), 7))
        s = {key: np.abs(a) for key, a in zip(rule.state_keys, states, strict=True)}
        new, after = update(rule, p, g, s, step, rule.lr / (step + 1))
        told += [new - p, *(after[key] for key in rule.state_keys)]
    return round_digits(np.concatenate([np.broadcast_to(a, 7) for a in told]))


def round_digits(numbers: Array) -> bytes:
    """Return numbers as bytes that are equal where seven digits are."""
    mantissa, exponent = np.frexp(np.nan_to_num(numbers))
    return bytes((np.round(mantissa, 7) + 0.0).tobytes() + exponent.tobytes())
