"""Hypotheses about the learning rate of an update."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from dualml.algorithms.optim import LRSchedule
from dualml.common.errors import UserError
from dualml.parity.finder.causes.base import Hypothesis, Observation, fit_factor
from dualml.parity.finder.causes.predict import ChangeInputs, both_phases, predict_from
from dualml.parity.finder.causes.relations import nearest_simple
from dualml.parity.finder.causes.rules import UpdateInputs


def rate_changes(suspect: Observation) -> Iterator[tuple[str, ChangeInputs, dict[str, Any]]]:
    """Yield (cause, change of inputs, details) with other learning rates: a shifted or ignored
    schedule, usual defaults, or a fitted factor."""
    scene, lr = suspect.scene, suspect.scene.arm.rule.lr
    plan, updates = scene.arm.plan_schedule, scene.recipe.updates
    first = 0 if plan.warmup else 1  # a warm-up begins at learning rate 0

    def with_rate(number: Callable[[int], float]) -> ChangeInputs:
        return lambda step, rank, start: start._replace(lr=number(step))

    def scheduled_rate(step: int) -> float:
        """Return the scheduled learning rate of an update."""
        return lr * plan.factor(min(max(step, first), updates), updates)

    if plan.kind != "constant" or plan.warmup:
        for shift in (-1, 1):
            yield (
                "schedule-counter",
                with_rate(lambda s, d=shift: scheduled_rate(s + d)),
                {"shift": shift},
            )
        yield "schedule-ignored", with_rate(lambda s: lr), {}
        epoch = scene.plan.batch_sampler(scene.arm, scene.recipe.seed).per_epoch
        held = with_rate(lambda s: scheduled_rate((s - 1) // epoch * epoch + 1))
        yield "schedule-by-epoch", held, {"updates": epoch}
    for field, other in other_schedules(plan, updates):
        other_rate = with_rate(lambda s, o=other: lr * o.factor(s, updates))
        yield "other-schedule", other_rate, {field: getattr(other, field)}
    for usual in (0.1, 0.01, 1e-3):
        if usual != lr:
            yield "default-rate", with_rate(lambda s, usual=usual: usual), {"lr": usual}
    if suspect.phase == "update":
        before = {step: scene.weights(step) for step, _ in suspect.violations}
        c = fit_factor(
            [(a - before[s][n], b - before[s][n]) for s, n, a, b in suspect.comparable_tensors()]
        )
        yield "scaled-rate", with_rate(lambda s: c * scene.recipe.learning_rate(s)), {"factor": c}


def other_schedules(plan: LRSchedule, updates: int) -> Iterator[tuple[str, LRSchedule]]:
    """Yield (name of the field, schedule) for schedules of the same kind in which one field has
    another value and a learning rate differs; nothing for a constant rate."""
    total = plan.total or updates
    fields: dict[str, tuple[Any, ...]] = {"warmup": (0, 1, plan.warmup + 1, plan.warmup - 1)}
    if plan.kind == "cosine":
        fields |= {"floor": (0.0, 0.1, 0.01), "total": (2 * total, total - 1, total + 1)}
    if plan.kind == "step":
        fields |= {"gamma": (0.1, 0.5, 0.9), "every": (2 * plan.every, plan.every + 1)}
    if plan.constant:
        return
    for field, values in fields.items():
        for value in values:
            try:
                other = dataclasses.replace(plan, **{field: value})
            except UserError:
                continue
            if other.factors(updates) != plan.factors(updates):
                yield field, other


def rates_of_updates(suspect: Observation) -> Iterator[Hypothesis]:
    """Yield the hypothesis that updates have other learning rates, one fitted number for each;
    nothing if all are the same multiple of the planned ones."""
    scene = suspect.scene
    factors = {}
    for step in sorted({step for step, _ in suspect.violations}):
        before = scene.recorded_start(step)[0]
        pairs = [
            (seen - before[n], right - before[n])
            for s, n, seen, right in suspect.comparable_tensors()
            if s == step and np.isfinite(seen).all()
        ]
        factors[step] = nearest_simple(fit_factor(pairs))
    rates = {step: c * scene.recipe.learning_rate(step) for step, c in factors.items()}
    complete = {step: factors.get(step, 1.0) for step in scene.steps}
    if len(set(complete.values())) == 1:
        return

    def other_rate(step: int, rank: int, start: UpdateInputs) -> UpdateInputs:
        return start._replace(lr=rates.get(step, start.lr))

    planned = [scene.recipe.learning_rate(step) for step in rates]
    detail = {"at": list(rates), "rates": list(rates.values()), "planned": planned}
    yield both_phases(
        suspect,
        "rates-of-updates",
        lambda other: predict_from(other, other_rate),
        detail,
        fitted_count=len(rates),
    )
