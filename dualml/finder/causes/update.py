"""Hypotheses about an update whose gradient is correct: the rule with one change."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from dualml.finder.causes.base import HALVES, Arrays, Guess, Predict, Suspect, clipped, fit, rounded
from dualml.finder.causes.rules import Change, Result, Start, Update, altered, by, undecayed
from dualml.model.layers import LayerNorm

#: Function of (update, rank, recorded inputs) that returns changed inputs, or None if they are
#: unknown.
Before = Callable[[int, int, Start], Start | None]


def guesses(suspect: Suspect) -> Iterator[Guess]:
    """Yield the hypotheses about the update."""
    rule = suspect.scene.arm.rule
    for cause, update, detail in (*altered(rule), *filters(suspect), *frozen(suspect)):
        yield Guess(cause, after(suspect, update), detail)
    for cause, before, detail in (*rates(suspect), *counts(), *gradients(suspect)):
        yield Guess(cause, started(suspect, before), detail, free=int(cause == "scaled-rate"))
    for cause, update, detail in precision(by(rule)):
        yield Guess(cause, after(suspect, update), detail)
    if suspect.ranks > 1 and suspect.scene.arm.split is None:
        yield unaveraged(suspect)


def given(suspect: Suspect, step: int, rank: int) -> Start:
    """Return the inputs of an update; the gradients are the backend's own, or the reference's if
    they were not recorded."""
    scene = suspect.scene
    weights, state = scene.start(step)
    grads: Mapping[str, Any] = scene.own_gradient(suspect.backend, rank, step)
    for phase in ("aggregation", "gradient"):
        grads = grads or suspect.referee(step, rank, phase)
    grads = {n: grads[n] for n in weights if n in grads}
    return Start(weights, grads, state, step, scene.recipe.rate(step))


def started(suspect: Suspect, before: Before, update: Update | None = None) -> Predict:
    """Return the prediction of an update (default: the rule's) with changed inputs."""
    make = update or by(suspect.scene.arm.rule)

    def predict(step: int, rank: int) -> Arrays:
        start = given(suspect, step, rank)
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


def after(suspect: Suspect, update: Update) -> Predict:
    """Return the prediction of a changed update with the recorded weights, gradients and state."""
    return started(suspect, lambda step, rank, start: start, update)


def of_kind(suspect: Suspect) -> tuple[list[str], list[str], list[str]]:
    """Return the names of all parameters, of biases, and of LayerNorm parameters."""
    names = list(suspect.scene.states[suspect.looks[0][0]][0])
    layers = dict(suspect.scene.recipe.spec.layers)
    biases = [n for n in names if n.rpartition(".")[2].startswith("bias")]
    return names, biases, [n for n in names if isinstance(layers[n.rpartition(".")[0]], LayerNorm)]


def filters(suspect: Suspect) -> Iterator[Change]:
    """Yield updates whose weight decay skips some parameters."""
    rule, (names, biases, norms) = suspect.scene.arm.rule, of_kind(suspect)
    vectors = [n for n, shape in suspect.scene.recipe.spec.parameters().items() if len(shape) == 1]
    plain = undecayed(rule)
    if plain is None:
        return
    for what, some in (("biases", biases), ("LayerNorm", norms), ("vectors", vectors)):
        if some and set(some) != set(names):
            yield "decay-filter", mixed(by(rule), plain, some), {"without": what}
    others = [n for n in names if n not in biases]
    yield "decay-filter", mixed(by(rule), plain, others), {"without": "weights"}


def frozen(suspect: Suspect) -> Iterator[Change]:
    """Yield updates that skip some parameters."""
    usual, (names, biases, norms) = by(suspect.scene.arm.rule), of_kind(suspect)

    def still(start: Start) -> Result:
        """Return weights and state unchanged."""
        return start.p, start.s

    one = suspect.tensor.rpartition("/")[2]
    kinds = {"biases": biases, "the last layer": names[-2:], "the first layer": names[:2],
             "LayerNorm": norms, "the tensor named": [one]}  # fmt: skip
    for what, some in kinds.items():
        if some and set(some) < set(names):
            yield "frozen-parameters", mixed(usual, still, some), {"parameters": some, "are": what}
    yield "frozen-parameters", mixed(usual, still, names), {"parameters": "all"}


def mixed(usual: Update, other: Update, names: list[str]) -> Update:
    """Return the update ``usual``, with ``other`` for the named parameters."""

    def update(start: Start) -> Result:
        (weights, state), (odd, odd_state) = usual(start), other(start)

        def pick(many: Mapping[str, Any], few: Mapping[str, Any]) -> dict[str, Any]:
            return {n: few[n] if n in names else a for n, a in many.items()}

        slots = {slot: pick(named, odd_state.get(slot, named)) for slot, named in state.items()}
        return pick(weights, odd), slots

    return update


def rates(suspect: Suspect) -> Iterator[tuple[str, Before, dict[str, Any]]]:
    """Yield inputs with other learning rates."""
    scene, lr = suspect.scene, suspect.scene.arm.rule.lr
    plan, updates = scene.arm.plan_schedule, scene.recipe.updates
    first = 0 if plan.warmup else 1  # a warm-up begins at learning rate 0

    def rate(number: Callable[[int], float]) -> Before:
        return lambda step, rank, start: start._replace(lr=number(step))

    def at(step: int) -> float:
        """Return the scheduled learning rate of an update."""
        return lr * plan.factor(min(max(step, first), updates), updates)

    if plan.kind != "constant" or plan.warmup:
        for shift in (-1, 1):
            yield "schedule-counter", rate(lambda s, d=shift: at(s + d)), {"shift": shift}
        yield "schedule-ignored", rate(lambda s: lr), {}
        epoch = scene.plan.feed(scene.arm, scene.recipe.seed).per_epoch
        held = rate(lambda s: at((s - 1) // epoch * epoch + 1))
        yield "schedule-by-epoch", held, {"updates": epoch}
    for usual in (0.1, 0.01, 1e-3):
        if usual != lr:
            yield "default-rate", rate(lambda s, usual=usual: usual), {"lr": usual}
    if suspect.phase == "update":
        before = {step: scene.weights(step) for step, _ in suspect.looks}
        c = fit([(a - before[s][n], b - before[s][n]) for s, n, a, b in suspect.pairs()])
        yield "scaled-rate", rate(lambda s: c * scene.recipe.rate(s)), {"factor": c}


def counts() -> Iterator[tuple[str, Before, dict[str, Any]]]:
    """Yield inputs with another update number, for rules with bias correction."""
    for shift in (1, -1):
        yield "step-counter", lambda s, r, u, d=shift: u._replace(t=s + d), {"shift": shift}
    yield "step-counter", lambda s, r, u: u._replace(t=1), {"always": 1}


def gradients(suspect: Suspect) -> Iterator[tuple[str, Before, dict[str, Any]]]:
    """Yield inputs with other gradients than the recorded ones."""
    scene, ranks = suspect.scene, suspect.ranks

    def each(change: Callable[[Any], Any]) -> Before:
        return lambda step, rank, u: u._replace(g={n: change(a) for n, a in u.g.items()})

    def stale(step: int, rank: int, start: Start) -> Start | None:
        grads = suspect.gradient_before(step)
        return start._replace(g=dict(grads)) if grads else None

    def dropped(step: int, rank: int, start: Start) -> Start | None:
        index = scene.batch(step)[:-1]
        return start._replace(g=scene.gradient(step, index)[1]) if len(index) else None

    size = len(scene.batch(suspect.looks[0][0]))
    for factor, what in ((size, "samples"), (ranks, "ranks")):
        if factor > 1:
            yield "sum-not-mean", each(lambda a, c=factor: c * a), {"factor": what}
    if ranks > 1:
        yield "averaged-twice", each(lambda a: a / ranks), {"factor": f"1/{ranks}"}
    yield "flipped-sign", each(lambda a: -a), {"factor": -1}
    for kind in HALVES:
        half = each(lambda a, kind=kind: rounded(a, kind))
        yield "half-precision", half, {"type": kind, "of": "gradients"}
    yield "stale-gradient", stale, {}
    for limit in (0.1, 0.5, 1.0, 5.0):
        cut: Before = lambda s, r, u, limit=limit: u._replace(g=clipped(u.g, limit))  # noqa: E731
        yield "clipped-gradient", cut, {"norm": limit}
    yield "dropped-samples", dropped, {"dropped": "last"}


def precision(usual: Update) -> Iterator[Change]:
    """Yield updates that keep weights or state in half precision."""
    for kind in HALVES:

        def weights(start: Start, kind: str = kind) -> Result:
            new, state = usual(start)
            return {n: rounded(a, kind) for n, a in new.items()}, state

        def state(start: Start, kind: str = kind) -> Result:
            new, after = usual(start)
            return new, {k: {n: rounded(a, kind) for n, a in v.items()} for k, v in after.items()}

        yield "half-precision", weights, {"type": kind, "of": "weights"}
        yield "half-precision", state, {"type": kind, "of": "state"}


def unaveraged(suspect: Suspect) -> Guess:
    """Hypothesis: ranks continue with an update of their own."""
    scene = suspect.scene

    def own(step: int, rank: int, start: Start) -> Start | None:
        part = scene.part(step, rank)
        return start._replace(g=scene.gradient(step, part)[1]) if len(part) else None

    return Guess("unsynchronised-rank", started(suspect, own), {"ranks": suspect.lone})
