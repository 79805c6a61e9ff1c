"""Hypotheses about an update whose gradient is correct: the rule with one change."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from dualml.algorithms.model.layers import LayerNorm
from dualml.parity.finder.causes.base import (
    HALVES,
    Arrays,
    Hypothesis,
    Observation,
    Predict,
    clip_by_norm,
    fit_factor,
    round_to_half,
)
from dualml.parity.finder.causes.rules import (
    Change,
    Result,
    Update,
    UpdateInputs,
    apply_rule,
    rule_changes,
    without_decay,
)

#: Function of (update, rank, recorded inputs) that returns changed inputs, or None if they are
#: unknown.
ChangeInputs = Callable[[int, int, UpdateInputs], UpdateInputs | None]


def hypotheses(suspect: Observation) -> Iterator[Hypothesis]:
    """Yield the hypotheses about the update."""
    rule = suspect.scene.arm.rule
    for cause, update, detail in (
        *rule_changes(rule),
        *decay_filter_changes(suspect),
        *frozen_changes(suspect),
    ):
        yield Hypothesis(cause, predict_with(suspect, update), detail)
    for cause, before, detail in (
        *rate_changes(suspect),
        *step_count_changes(),
        *gradient_changes(suspect),
    ):
        yield Hypothesis(
            cause, predict_from(suspect, before), detail, fitted_count=int(cause == "scaled-rate")
        )
    for cause, update, detail in half_precision_changes(apply_rule(rule)):
        yield Hypothesis(cause, predict_with(suspect, update), detail)
    if suspect.world_size > 1 and suspect.scene.arm.split is None:
        yield own_updates(suspect)


def update_inputs(suspect: Observation, step: int, rank: int) -> UpdateInputs:
    """Return the inputs of an update: the common weights and state before it, and the backend's own
    gradients, or the reference's if they were not recorded."""
    scene = suspect.scene
    weights, state = scene.recorded_start(step)
    grads: Mapping[str, Any] = scene.own_gradient(suspect.backend, rank, step)
    for phase in ("aggregation", "gradient"):
        grads = grads or suspect.reference(step, rank, phase)
    grads = {n: grads[n] for n in weights if n in grads}
    return UpdateInputs(weights, grads, state, step, scene.recipe.learning_rate(step))


def predict_from(
    suspect: Observation, before: ChangeInputs, update: Update | None = None
) -> Predict:
    """Return the prediction of an update (default: the rule's) with changed inputs: the weights, or
    in phase ``state`` the optimizer state. Empty where the inputs are unknown."""
    make = update or apply_rule(suspect.scene.arm.rule)

    def predict(step: int, rank: int) -> Arrays:
        start = update_inputs(suspect, step, rank)
        if start.g.keys() != start.p.keys():
            return {}
        changed = before(step, rank, start)
        if changed is None or changed.t < 1:
            return {}
        try:
            with np.errstate(all="ignore"):
                weights, state = make(changed)
        except KeyError:  # the rule needs more state than was recorded
            return {}
        if suspect.phase == "update":
            return weights
        return {f"{slot}/{n}": a for slot, named in state.items() for n, a in named.items()}

    return predict


def predict_with(suspect: Observation, update: Update) -> Predict:
    """Return the prediction of a changed update with the recorded weights, gradients and state."""
    return predict_from(suspect, lambda step, rank, start: start, update)


def parameter_kinds(suspect: Observation) -> tuple[list[str], list[str], list[str]]:
    """Return the names of all parameters, of biases, and of LayerNorm parameters."""
    names = list(suspect.scene.states[suspect.violations[0][0]][0])
    layers = dict(suspect.scene.recipe.spec.layers)
    biases = [n for n in names if n.rpartition(".")[2].startswith("bias")]
    return names, biases, [n for n in names if isinstance(layers[n.rpartition(".")[0]], LayerNorm)]


def decay_filter_changes(suspect: Observation) -> Iterator[Change]:
    """Yield updates whose weight decay skips some parameters; nothing without weight decay."""
    rule, (names, biases, norms) = suspect.scene.arm.rule, parameter_kinds(suspect)
    vectors = [n for n, shape in suspect.scene.recipe.spec.parameters().items() if len(shape) == 1]
    plain = without_decay(rule)
    if plain is None:
        return
    for what, some in (("biases", biases), ("LayerNorm", norms), ("vectors", vectors)):
        if some and set(some) != set(names):
            yield "decay-filter", combine_updates(apply_rule(rule), plain, some), {"without": what}
    others = [n for n in names if n not in biases]
    yield "decay-filter", combine_updates(apply_rule(rule), plain, others), {"without": "weights"}


def frozen_changes(suspect: Observation) -> Iterator[Change]:
    """Yield updates that leave some parameters, or all, with their state unchanged."""
    usual, (names, biases, norms) = apply_rule(suspect.scene.arm.rule), parameter_kinds(suspect)

    def no_update(start: UpdateInputs) -> Result:
        """Return weights and state unchanged."""
        return start.p, start.s

    one = suspect.tensor.rpartition("/")[2]
    kinds = {
        "biases": biases,
        "the last layer": names[-2:],
        "the first layer": names[:2],
        "LayerNorm": norms,
        "the tensor named": [one],
    }
    for what, some in kinds.items():
        if some and set(some) < set(names):
            yield (
                "frozen-parameters",
                combine_updates(usual, no_update, some),
                {"parameters": some, "are": what},
            )
    yield "frozen-parameters", combine_updates(usual, no_update, names), {"parameters": "all"}


def combine_updates(usual: Update, other: Update, names: list[str]) -> Update:
    """Return the update ``usual``, with ``other`` for the named parameters."""

    def update(start: UpdateInputs) -> Result:
        (weights, state), (odd, odd_state) = usual(start), other(start)

        def pick(many: Mapping[str, Any], few: Mapping[str, Any]) -> dict[str, Any]:
            return {n: few[n] if n in names else a for n, a in many.items()}

        slots = {slot: pick(named, odd_state.get(slot, named)) for slot, named in state.items()}
        return pick(weights, odd), slots

    return update


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
    for usual in (0.1, 0.01, 1e-3):
        if usual != lr:
            yield "default-rate", with_rate(lambda s, usual=usual: usual), {"lr": usual}
    if suspect.phase == "update":
        before = {step: scene.weights(step) for step, _ in suspect.violations}
        c = fit_factor(
            [(a - before[s][n], b - before[s][n]) for s, n, a, b in suspect.comparable_tensors()]
        )
        yield "scaled-rate", with_rate(lambda s: c * scene.recipe.learning_rate(s)), {"factor": c}


def step_count_changes() -> Iterator[tuple[str, ChangeInputs, dict[str, Any]]]:
    """Yield (cause, change of inputs, details) with another update number, which matters only to
    rules with bias correction."""
    for shift in (1, -1):
        yield "step-counter", lambda s, r, u, d=shift: u._replace(t=s + d), {"shift": shift}
    yield "step-counter", lambda s, r, u: u._replace(t=1), {"always": 1}


def gradient_changes(suspect: Observation) -> Iterator[tuple[str, ChangeInputs, dict[str, Any]]]:
    """Yield (cause, change of inputs, details) with other gradients than the recorded ones."""
    scene, ranks = suspect.scene, suspect.world_size

    def change_gradients(change: Callable[[Any], Any]) -> ChangeInputs:
        return lambda step, rank, u: u._replace(g={n: change(a) for n, a in u.g.items()})

    def use_previous_gradient(step: int, rank: int, start: UpdateInputs) -> UpdateInputs | None:
        grads = suspect.previous_gradient(step)
        return start._replace(g=dict(grads)) if grads else None

    def drop_last_sample(step: int, rank: int, start: UpdateInputs) -> UpdateInputs | None:
        index = scene.batch_indices(step)[:-1]
        return start._replace(g=scene.gradient(step, index)[1]) if len(index) else None

    size = len(scene.batch_indices(suspect.violations[0][0]))
    for factor, what in ((size, "samples"), (ranks, "ranks")):
        if factor > 1:
            yield "sum-not-mean", change_gradients(lambda a, c=factor: c * a), {"factor": what}
    if ranks > 1:
        yield "averaged-twice", change_gradients(lambda a: a / ranks), {"factor": f"1/{ranks}"}
    yield "flipped-sign", change_gradients(lambda a: -a), {"factor": -1}
    for kind in HALVES:
        half = change_gradients(lambda a, kind=kind: round_to_half(a, kind))
        yield "half-precision", half, {"type": kind, "of": "gradients"}
    yield "stale-gradient", use_previous_gradient, {}
    for limit in (0.1, 0.5, 1.0, 5.0):
        cut: ChangeInputs = lambda s, r, u, limit=limit: u._replace(g=clip_by_norm(u.g, limit))  # noqa: E731
        yield "clipped-gradient", cut, {"norm": limit}
    yield "dropped-samples", drop_last_sample, {"dropped": "last"}


def half_precision_changes(usual: Update) -> Iterator[Change]:
    """Yield updates whose new weights, or whose new state, are rounded to half precision."""
    for kind in HALVES:

        def weights(start: UpdateInputs, kind: str = kind) -> Result:
            new, state = usual(start)
            return {n: round_to_half(a, kind) for n, a in new.items()}, state

        def state(start: UpdateInputs, kind: str = kind) -> Result:
            new, after = usual(start)
            return new, {
                k: {n: round_to_half(a, kind) for n, a in v.items()} for k, v in after.items()
            }

        yield "half-precision", weights, {"type": kind, "of": "weights"}
        yield "half-precision", state, {"type": kind, "of": "state"}


def own_updates(suspect: Observation) -> Hypothesis:
    """Return the hypothesis that ranks continue with an update of their own, from the gradient of
    their own samples."""
    scene = suspect.scene

    def own_batch_inputs(step: int, rank: int, start: UpdateInputs) -> UpdateInputs | None:
        part = scene.rank_indices(step, rank)
        return start._replace(g=scene.gradient(step, part)[1]) if len(part) else None

    return Hypothesis(
        "unsynchronised-rank",
        predict_from(suspect, own_batch_inputs),
        {"ranks": suspect.violating_ranks},
    )
