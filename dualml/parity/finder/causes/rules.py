"""Optimizer rules with one change: in a field, in the initial state, or in the formula."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from typing import Any, NamedTuple

import numpy as np

from dualml.algorithms.optim import Adagrad, Adam, AdamW, OptimizerSpec, RMSprop
from dualml.algorithms.optim.base import Params, State
from dualml.common.errors import UserError

EPSILONS = (0.0, 1e-10, 1e-8, 1e-7, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1)
DECAYS = (0.0, 1e-4, 5e-4, 1e-3, 1e-2, 1e-1)


class UpdateInputs(NamedTuple):
    """Inputs of an update.

    Attributes:
        p, g, s: weights, gradients and optimizer state.
        t: number of the update, from 1.
        lr: learning rate.
    """

    p: Params
    g: Params
    s: State
    t: int
    lr: float


#: Weights and optimizer state after an update.
Result = tuple[Params, State]
Update = Callable[[UpdateInputs], Result]
Change = tuple[str, Update, dict[str, Any]]


def apply_rule(rule: OptimizerSpec) -> Update:
    """Return the function that applies an optimizer's update rule to `UpdateInputs` and returns
    (weights, state)."""
    return lambda start: rule.update(*start)


def rule_changes(rule: OptimizerSpec) -> Iterator[Change]:
    """Yield all changes of a rule: cause, changed update, and details; settings that the rule
    refuses are left out."""
    for cause, fields in field_changes(rule):
        try:
            changed = replace(rule, **fields)
        except UserError:
            continue
        detail = {name: list(v) if isinstance(v, tuple) else v for name, v in fields.items()}
        yield cause, apply_rule(changed), detail
    yield from decay_coupling_changes(rule)
    yield from initial_state_changes(rule)
    yield from formula_changes(rule)


def field_changes(rule: OptimizerSpec) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield (cause, changed fields of the rule); some combinations may be invalid or change
    nothing."""
    fields = asdict(rule)
    if isinstance(rule, Adam):
        yield from adam_fields(rule)
    for eps in EPSILONS if "eps" in fields else ():
        if eps != fields["eps"]:
            yield "other-epsilon", {"eps": eps}
    for decay in DECAYS if "weight_decay" in fields else ():
        if decay != fields["weight_decay"]:
            yield ("missing-decay" if decay == 0 else "other-decay"), {"weight_decay": decay}
    if "momentum" in fields:
        yield from momentum_fields(fields)
    if isinstance(rule, RMSprop):
        for alpha in (0.9, 0.99, 0.95):
            yield "other-alpha", {"alpha": alpha}
        yield "rmsprop-centered", {"centered": not rule.centered}
    if isinstance(rule, Adagrad):
        for start in (0.0, 0.1, 1.0):
            yield "state-start", {"initial_accumulator": start}
        for decay in (0.0, 0.01):
            yield "other-decay", {"lr_decay": decay}


def adam_fields(rule: Adam) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield (cause, changed fields) of Adam: form of eps, bias correction, betas."""
    yield "adam-epsilon", {"eps_form": "hat" if rule.eps_form == "outside" else "outside"}
    yield "bias-correction", {"bias_correction": not rule.bias_correction}
    b1, b2 = rule.betas
    others = [(b2, b1), *((b1, b) for b in (0.99, 0.9, 0.95))]
    for betas in (*others, *((b, b2) for b in (0.0, 0.5, 0.95, 0.99))):
        if betas != rule.betas:
            yield "other-betas", {"betas": betas}


def momentum_fields(fields: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield (cause, changed fields) of SGD-like rules: momentum, Nesterov, dampening."""
    momentum, nesterov = fields["momentum"], fields.get("nesterov")
    if momentum:
        if nesterov or (nesterov is False and not fields["dampening"]):
            yield "nesterov", {"nesterov": not nesterov}
        plain = {} if nesterov is None else {"nesterov": False}
        yield "missing-momentum", {"momentum": 0.0, **plain}
    for value in (0.5, 0.9, 0.95, 0.99):
        if value != momentum:
            yield "other-momentum", {"momentum": value}
    if "dampening" in fields and not nesterov:
        for value in (0.0, 0.1, 0.9, momentum):
            if value != fields["dampening"]:
                yield "dampening", {"dampening": value}


def without_decay(rule: OptimizerSpec) -> Update | None:
    """Return the update of the rule without weight decay; None if its weight decay is 0 or
    absent."""
    if not asdict(rule).get("weight_decay"):
        return None
    fields: dict[str, Any] = {"weight_decay": 0.0}
    return apply_rule(replace(rule, **fields))


def decay_coupling_changes(rule: OptimizerSpec) -> Iterator[Change]:
    """Yield (cause, update function, details) with weight decay coupled as in the other one of Adam
    and AdamW, or decoupled, with or without the learning rate as a factor; nothing without weight
    decay."""
    plain = without_decay(rule)
    if plain is None:
        return
    decay = asdict(rule)["weight_decay"]
    if isinstance(rule, Adam):
        kind = Adam if isinstance(rule, AdamW) else AdamW
        yield "decay-coupling", apply_rule(kind(**asdict(rule))), {"as": kind.__name__}

    def shrink_then_update(start: UpdateInputs, share: float) -> Result:
        return plain(start._replace(p={n: w * (1 - share) for n, w in start.p.items()}))

    yield (
        "decay-coupling",
        lambda start: shrink_then_update(start, start.lr * decay),
        {"as": "decoupled"},
    )
    yield "decay-without-rate", lambda start: shrink_then_update(start, decay), {"decay": decay}


def initial_state_changes(rule: OptimizerSpec) -> Iterator[Change]:
    """Yield (cause, update function, details) for each kind of optimizer state and each constant
    0.1, 1 and 0: update 1 begins with that state filled with the constant, and later updates follow
    the rule."""
    for slot in rule.state_keys:
        for value in (0.1, 1.0, 0.0):

            def update(start: UpdateInputs, slot: str = slot, value: float = value) -> Result:
                full = {slot: {n: np.full_like(a, value) for n, a in start.p.items()}}
                return rule.update(*start._replace(s=start.s | full if start.t == 1 else start.s))

            yield "state-start", update, {"slot": slot, "value": value}


def formula_changes(rule: OptimizerSpec) -> Iterator[Change]:
    """Yield (cause, update function, details) with the same settings in another formula, such as
    eps inside the root, with lost state, or made twice."""
    fields, slots = asdict(rule), rule.state_keys
    eps, mu = fields.get("eps", 0.0), fields.get("momentum", 0.0)
    if isinstance(rule, Adam):

        def eps_inside_root(start: UpdateInputs) -> Result:
            _, state = rule.update(*start)
            (b1, b2), weights = rule.betas, {}
            for n, w in start.p.items():
                m = state["exp_avg"][n] / (1 - b1**start.t)
                v = state["exp_avg_sq"][n] / (1 - b2**start.t)
                base = w * (1 - start.lr * rule.weight_decay) if rule.decoupled else w
                weights[n] = base - start.lr * m / np.sqrt(v + eps)
            return weights, state

        yield "eps-inside-root", eps_inside_root, {"eps": eps}
    elif "square_avg" in slots or "sum" in slots:
        slot = "square_avg" if "square_avg" in slots else "sum"

        def square_root_of_sum(start: UpdateInputs) -> Result:
            _, state = rule.update(*start)
            return {
                n: w - start.lr * start.g[n] / np.sqrt(state[slot][n] + eps)
                for n, w in start.p.items()
            }, state

        yield "eps-inside-root", square_root_of_sum, {"eps": eps}
    if "momentum_buffer" in slots and not eps:

        def average_momentum(start: UpdateInputs) -> Result:
            b = {n: mu * start.s["momentum_buffer"][n] + (1 - mu) * g for n, g in start.g.items()}
            return {n: w - start.lr * b[n] for n, w in start.p.items()}, {"momentum_buffer": b}

        def rate_in_buffer(start: UpdateInputs) -> Result:
            b = {n: mu * start.s["momentum_buffer"][n] + start.lr * g for n, g in start.g.items()}
            return {n: w - b[n] for n, w in start.p.items()}, {"momentum_buffer": b}

        yield "momentum-average", average_momentum, {}
        yield "rate-in-buffer", rate_in_buffer, {}
    if slots:
        yield "state-lost", lambda u: rule.update(*u._replace(s=rule.init(u.p))), {}

    def double_update(start: UpdateInputs) -> Result:
        weights, state = rule.update(*start)
        return rule.update(*start._replace(p=weights, s=state, t=start.t + 1))

    yield "updated-twice", double_update, {}
