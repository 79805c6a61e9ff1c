"""Hyperparameters of the optimizers of Lab 1: random ones, those of an update, and their dtype."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from dualml.course.computed import Draw, draw_adam, draw_lr, round_for_display

Hyper = dict[str, Any]
Number = type[np.floating[Any]]


def draw_gd(draw: Draw) -> Hyper:
    """Draw the hyperparameters of GD as a dict, ``lr`` alone."""
    return {"lr": draw_lr(draw)}


def draw_momentum(draw: Draw) -> float:
    """Draw a momentum from 0.5 to 0.9."""
    return round_for_display(draw.uniform(0.5, 0.9))


def draw_decay(draw: Draw) -> float:
    """Draw a weight decay from 0.1 to 0.4."""
    return round_for_display(draw.uniform(0.1, 0.4))


def make_sgd_draw(
    momentum: bool = False, decay: bool = False, nesterov: bool = False
) -> Callable[[Draw], Hyper]:
    """Make a function that draws hyperparameters of SGD; ``momentum`` and ``decay`` say whether
    these are drawn or 0, ``nesterov`` is the value of that switch."""

    def hyper(draw: Draw) -> Hyper:
        """Draw hyperparameters of SGD."""
        return {
            "lr": draw_lr(draw),
            "momentum": draw_momentum(draw) if momentum else 0.0,
            "weight_decay": draw_decay(draw) if decay else 0.0,
            "nesterov": nesterov,
        }

    return hyper


def make_adam_draw(
    decay: bool = False, decoupled: bool = False, corrected: bool = True
) -> Callable[[Draw], Hyper]:
    """Make a function that draws hyperparameters of Adam; weight decay is 0 unless ``decay``,
    ``decoupled`` and ``corrected`` are the values of the switches for decoupled decay and bias
    correction."""

    def hyper(draw: Draw) -> Hyper:
        """Draw hyperparameters of Adam."""
        return {
            **draw_adam(draw),
            "weight_decay": draw_decay(draw) if decay else 0.0,
            "decoupled": decoupled,
            "bias_correction": corrected,
        }

    return hyper


def draw_others(draw: Draw, hyper: Mapping[str, Any]) -> Hyper:
    """Draw for each hyperparameter another value: numbers anew, switches the other way; a momentum
    or decay of 0 stays."""
    other: Hyper = {}
    for name, value in hyper.items():
        if isinstance(value, bool):
            other[name] = not value
    drawn: dict[str, Callable[[], Any]] = {
        "lr": lambda: draw_lr(draw),
        "momentum": lambda: draw_momentum(draw) if hyper["momentum"] else 0.0,
        "weight_decay": lambda: draw_decay(draw) if hyper["weight_decay"] else 0.0,
        "betas": lambda: draw_adam(draw)["betas"],
        "eps": lambda: draw_adam(draw)["eps"],
    }
    return {name: drawn[name]() if name in drawn else other[name] for name in hyper}


def draw_changed(draw: Draw, hyper: Mapping[str, Any]) -> Hyper:
    """Draw other hyperparameters for the next update; momentum, betas and bias correction stay, for
    with others a recurrence and a sum over all gradients so far, or βᵗ and a product of all βs,
    would differ, and both be right."""
    kept = {n: hyper[n] for n in ("momentum", "betas", "bias_correction") if n in hyper}
    return {**draw_others(draw, hyper), **kept}


def cast_hyperparameters(h: Mapping[str, Any], number: Number) -> dict[str, Any]:
    """Return a copy of the hyperparameters with numbers of this dtype; lists become tuples,
    booleans stay."""

    def cast_value(value: Any) -> Any:
        """Convert one value; leave booleans unchanged."""
        if isinstance(value, list | tuple):
            return tuple(number(v) for v in value)
        return value if isinstance(value, bool) else number(value)

    return {name: cast_value(value) for name, value in h.items()}


def optimizer_entry(options: Mapping[str, Any], step: int, name: str) -> Mapping[str, Any]:
    """Return the entry of ``optimizers`` in a call's options that updates parameter ``name`` in
    update ``step``, from 1: its ``names``, ``hyper``, ``first`` and ``last`` update. Without such
    an entry the call has one optimizer, with ``hyper`` and ``first`` 1."""
    whole = {"hyper": options["hyper"], "first": 1}
    plans = options.get("optimizers", ())
    found = (p for p in plans if name in p["names"] and p["first"] <= step <= p["last"])
    return next(found, whole)


def first_update(options: Mapping[str, Any], step: int, name: str) -> int:
    """Return the first update of the optimizer that updates parameter ``name`` in update
    ``step``."""
    return int(optimizer_entry(options, step, name)["first"])


def settings_of(options: Mapping[str, Any], step: int, name: str) -> dict[str, Any]:
    """Return the hyperparameters of parameter ``name`` in update ``step``, from 1, by a call's
    options: those of its optimizer, of its group and of the update."""
    used = {
        **optimizer_entry(options, step, name)["hyper"],
        **options.get("groups", {}).get(name, {}),
    }
    if "rates" in options:
        used["lr"] = options["rates"][step - 1]
    if "settings" in options:
        used |= options["settings"][step - 1]
    return used
