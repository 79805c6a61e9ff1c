"""Hypotheses about an update whose rule differs in one of its own lines, or in two."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dualml.algorithms.optim import OptimizerSpec
from dualml.parity.finder.causes.base import Hypothesis, Observation, phase_tensors
from dualml.parity.finder.causes.predict import changed_update, update_inputs
from dualml.parity.finder.causes.rules import Result, UpdateInputs
from dualml.parity.finder.evaluation import rounding_limit
from dualml.parity.finder.lines.program import (
    changed_lines,
    compile_program,
    make_patch,
    read_program,
)
from dualml.parity.finder.lines.search import ELEMENTS, RecordedUpdate, matching_changes

#: Ranks whose updates are looked at.
RANKS = 2


def line_changes(suspect: Observation, twice: bool = False) -> Iterator[Hypothesis]:
    """Yield the hypotheses that one line of the update rule, with ``twice`` two lines, computes
    something else, such that every recorded update is reproduced to rounding; see
    `matching_changes`."""
    rule, schedule = suspect.scene.arm.rule, suspect.scene.arm.plan_schedule
    updates = [
        one
        for rank in suspect.violating_ranks[:RANKS]
        for step in suspect.scene.steps
        if (one := recorded_update(suspect, step, rank)) is not None
    ]
    right = read_program(rule)
    for tree, cost in matching_changes(rule, updates, not schedule.constant, twice):
        assert right is not None
        line, instead = changed_lines(right, tree)
        detail = {"line": line, "instead": instead}
        guess = changed_update(suspect, "changed-line", changed_rule(rule, tree), detail, cost)
        yield replace(guess, patch=make_patch(rule, tree))


def changed_rule(rule: OptimizerSpec, tree: ast.FunctionDef) -> Any:
    """Return the update function of a changed program: from `UpdateInputs` to (weights, state) of
    all tensors.

    Args:
        rule: the optimizer whose settings and state keys count.
        tree: the program, for one tensor.
    """
    one = compile_program(tree, rule)

    def update(start: UpdateInputs) -> Result:
        told = {
            n: one(rule, p, start.g[n], {k: s[n] for k, s in start.s.items()}, start.t, start.lr)
            for n, p in start.p.items()
        }
        state = {
            key: {n: np.asarray(s[key]) for n, (_, s) in told.items()} for key in rule.state_keys
        }
        return {n: np.asarray(p) for n, (p, _) in told.items()}, state

    return update


def recorded_update(suspect: Observation, step: int, rank: int) -> RecordedUpdate | None:
    """Return about ELEMENTS elements of every tensor of an update, before and after it; None if
    something was not recorded, or has another shape."""
    start, rule = update_inputs(suspect, step, rank), suspect.scene.arm.rule
    seen = suspect.scene.sides[suspect.backend].ranks[rank]
    after = phase_tensors(seen, step, "update")
    state = phase_tensors(seen, step, "state")
    slots = {key: {n: state.get(f"{key}/{n}") for n in start.p} for key in rule.state_keys}
    told: dict[str, Any] = {"update": after, **slots}
    if start.g.keys() != start.p.keys() or not set(rule.state_keys) <= set(start.s):
        return None
    for named in told.values():
        if any(named.get(n) is None or named[n].shape != p.shape for n, p in start.p.items()):
            return None

    def sample_entries(a: NDArray[Any]) -> NDArray[Any]:
        flat = a.astype(np.float64).ravel()
        return flat[:: max(1, len(flat) // ELEMENTS)]

    def join_samples(named: Any) -> NDArray[Any]:
        return np.concatenate([sample_entries(np.asarray(named[n])) for n in start.p])

    def limits(key: str) -> NDArray[Any]:
        place = f"{step}/update/" if key == "update" else f"{step}/state/{key}/"
        return np.array([limit_of(suspect, rank, place + n, told[key][n]) for n in start.p])

    sizes = [len(sample_entries(p)) for p in start.p.values()]
    return RecordedUpdate(
        join_samples(start.p),
        join_samples(start.g),
        {key: join_samples(start.s[key]) for key in rule.state_keys},
        step,
        start.lr,
        {key: join_samples(named) for key, named in told.items()},
        {key: limits(key) for key in told},
        np.concatenate([[0], np.cumsum(sizes)[:-1]]).astype(np.int64),
    )


def limit_of(suspect: Observation, rank: int, key: str, seen: NDArray[Any]) -> float:
    """Return twice the root mean square of the rounding of a tensor's elements, because a few
    elements may be rounded more than all.

    Args:
        key: ``STEP/PHASE/TENSOR``.
        seen: the recorded tensor.
    """
    size = float(np.linalg.norm(seen.astype(np.float64))) / np.sqrt(max(seen.size, 1))
    return float(2 * rounding_limit(suspect, rank, key) * size + 1e-37)
