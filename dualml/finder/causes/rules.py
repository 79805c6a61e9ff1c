"""Fields of a rule that people set otherwise: the variants of each rule, cause by cause."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from dualml.optim import Adagrad, Adam, RMSprop, Rule

EPSILONS = (0.0, 1e-10, 1e-8, 1e-7, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1)
DECAYS = (0.0, 1e-4, 5e-4, 1e-3, 1e-2, 1e-1)


def variants(rule: Rule) -> Iterator[tuple[str, dict[str, Any]]]:
    """Cause, and the fields that are other ones."""
    if isinstance(rule, Adam):
        yield from of_adam(rule)
    if hasattr(rule, "eps"):
        for eps in EPSILONS:
            if eps != rule.eps:
                yield "other-epsilon", {"eps": eps}
    if hasattr(rule, "weight_decay"):
        for decay in DECAYS:
            if decay != rule.weight_decay:
                yield ("missing-decay" if decay == 0 else "other-decay"), {"weight_decay": decay}
    if hasattr(rule, "momentum"):
        yield from of_momentum(rule)
    if isinstance(rule, RMSprop):
        for alpha in (0.9, 0.99, 0.95):
            yield "other-alpha", {"alpha": alpha}
        yield "rmsprop-centered", {"centered": not rule.centered}
    if isinstance(rule, Adagrad):
        for start in (0.0, 0.1, 1.0):
            yield "state-start", {"initial_accumulator": start}
        for decay in (0.0, 0.01):
            yield "other-decay", {"lr_decay": decay}


def of_adam(rule: Adam) -> Iterator[tuple[str, dict[str, Any]]]:
    other = "hat" if rule.eps_form == "outside" else "outside"
    yield "adam-epsilon", {"eps_form": other}
    yield "bias-correction", {"bias_correction": not rule.bias_correction}
    b1, b2 = rule.betas
    for betas in (
        (b2, b1),
        (b1, 0.99),
        (b1, 0.9),
        (b1, 0.95),
        (0.0, b2),
        (0.5, b2),
        (0.95, b2),
        (0.99, b2),
    ):
        if betas != rule.betas:
            yield "other-betas", {"betas": betas}


def of_momentum(rule: Any) -> Iterator[tuple[str, dict[str, Any]]]:
    if getattr(rule, "nesterov", False) or rule.momentum:
        if hasattr(rule, "nesterov"):
            if rule.nesterov:
                yield "nesterov", {"nesterov": False}
            elif not getattr(rule, "dampening", 0.0):
                yield "nesterov", {"nesterov": True}
        yield (
            "missing-momentum",
            {"momentum": 0.0, **({"nesterov": False} if hasattr(rule, "nesterov") else {})},
        )
    for value in (0.5, 0.9, 0.95, 0.99):
        if value != rule.momentum:
            yield "other-momentum", {"momentum": value}
    if hasattr(rule, "dampening") and not getattr(rule, "nesterov", False):
        for value in (0.0, 0.1, 0.9, rule.momentum):
            if value != rule.dampening:
                yield "dampening", {"dampening": value}
