"""Hypotheses about an update whose gradient is correct: the rule with one change."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from dualml.algorithms.model.layers import LayerNorm
from dualml.parity.finder.causes.base import HALVES, ROUGH, Hypothesis, Observation, clip_by_norm
from dualml.parity.finder.causes.predict import (
    ChangeInputs,
    PredictFor,
    both_phases,
    changed_update,
    predict_from,
)
from dualml.parity.finder.causes.rates import rate_changes, rates_of_updates
from dualml.parity.finder.causes.relations import changed_gradients, tensor_factors
from dualml.parity.finder.causes.rules import (
    Change,
    Result,
    Update,
    UpdateInputs,
    apply_rule,
    rule_changes,
    without_decay,
)
from dualml.parity.transforms import round_to_half


def hypotheses(suspect: Observation) -> Iterator[Hypothesis]:
    """Yield the hypotheses about an update that deviates although its gradient is correct: another
    rule, rate, step count or gradient, frozen parameters, rounding, or an update of each rank's
    own."""
    usual = apply_rule(suspect.scene.arm.rule)
    for cause, update, detail in (
        *rule_changes(suspect.scene.arm.rule),
        *decay_filter_changes(suspect),
        *frozen_changes(suspect),
    ):
        yield changed_update(suspect, cause, update, detail)
    for cause, before, detail in (
        *rate_changes(suspect),
        *step_count_changes(),
        *gradient_changes(suspect),
    ):
        fitted = int(cause in ("scaled-rate", "clipped-gradient"))
        predict: PredictFor = lambda o, b=before: predict_from(o, b)  # noqa: E731
        whole: Update = lambda start, b=before: usual(b(start.t, 0, start))  # noqa: E731
        yield both_phases(suspect, cause, predict, detail, fitted_count=fitted, update=whole)
    for cause, update, detail in half_precision_changes(usual):
        half = changed_update(suspect, cause, update, detail)
        yield dataclasses.replace(half, roughness=ROUGH)
    if suspect.phase == "update":
        yield from tensor_factors(suspect)
        yield from rates_of_updates(suspect)
    if suspect.world_size > 1 and suspect.scene.arm.split is None:
        yield own_updates(suspect)


def parameter_kinds(suspect: Observation) -> tuple[list[str], list[str], list[str]]:
    """Return the names of all parameters, of biases, and of LayerNorm parameters."""
    names = list(suspect.scene.states[suspect.violations[0][0]][0])
    layers = dict(suspect.scene.recipe.spec.layers)
    biases = [n for n in names if n.rpartition(".")[2].startswith("bias")]
    return names, biases, [n for n in names if isinstance(layers[n.rpartition(".")[0]], LayerNorm)]


def decay_filter_changes(suspect: Observation) -> Iterator[Change]:
    """Yield (cause, update function, details): updates whose weight decay skips some parameters;
    nothing without weight decay."""
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
    """Yield (cause, update function, details): updates that change neither weights nor state of
    some parameters, or of all."""
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
    for cause, change, detail in changed_gradients({}):
        if "function" in detail:  # limits cannot be read from an update
            changed: ChangeInputs = lambda s, r, u, f=change: u._replace(g=dict(f(u.g)))  # noqa: E731
            yield cause, changed, detail
    yield "dropped-samples", drop_last_sample, {"dropped": "last"}


def half_precision_changes(usual: Update) -> Iterator[Change]:
    """Yield (cause, update function, details): the update ``usual`` with its new weights, or its
    new state, rounded to half precision."""
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

    return both_phases(
        suspect,
        "unsynchronised-rank",
        lambda other: predict_from(other, own_batch_inputs),
        {"ranks": suspect.violating_ranks},
    )
