"""GD and SGD with typical mistakes as options: mutations of `dualml.algorithms.optim`.

A rule is a function of one parameter ``p``, its gradient ``g``, its state ``s`` (changed in place),
its number of updates ``t`` (from 1), the hyperparameters ``h`` and the mistakes ``f``; it returns
the new parameter. Without mistakes it equals the rule of `dualml.algorithms.optim`, as the tests
check. Every number has the dtype of ``p``: tolerances are derived from the effect of float32.
Adam is in `dualml.course.lab1.adam`, the loop over updates and parameters in
`dualml.course.lab1.trajectory`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from dualml.course.exercise import Flags
from dualml.course.mistakes import compute_mistaken

State = dict[str, Any]
Rule = Callable[[Any, Any, State, int, Mapping[str, Any], Flags], Any]


def gd(p: Any, g: Any, s: State, t: int, h: Mapping[str, Any], f: Flags) -> Any:
    """Return parameter ``p`` after gradient descent by gradient ``g``, with hyperparameters ``h``
    and the typical mistakes named in ``f``; ``s`` is the state, changed in place."""
    return take_step(p, transform_gradient(g, s, f), h["lr"], f)


def transform_gradient(g: Any, s: State, f: Flags) -> Any:
    """Return the gradient ``g`` as the typical mistakes named in ``f`` use it; the parameter's
    state ``s`` keeps it, in place, for mistakes in later updates."""
    mistaken: dict[str, Callable[[], Any]] = {
        "accumulated": lambda: g + s.get("sum", 0),
        "gradient_late": lambda: s.get("gradient", g * 0),
        "gradient_late#2": lambda: s.get("gradient", g),
        "gradient_transformed": lambda: np.sign(g),
        "gradient_transformed#2": lambda: abs(g),
        "gradient_transformed#3": lambda: g * g,
        "gradient_transformed#4": lambda: g * 0 + g.mean(),
        "gradient_transformed#5": lambda: g / np.sqrt((g * g).sum()),
    }
    used = compute_mistaken(f, mistaken, lambda: g)
    s["sum"], s["gradient"] = s.get("sum", 0) + g, g
    return used


def take_step(p: Any, d: Any, lr: Any, f: Flags) -> Any:
    """Return ``p`` − ``lr`` · ``d``, as the typical mistakes named in ``f`` change it."""
    mistaken: dict[str, Callable[[], Any]] = {
        "sign": lambda: p + lr * d,
        "no_lr": lambda: p - d,
        "twice#2": lambda: p - 2 * lr * d,
        "nothing#2": lambda: p,
        "lr_misplaced": lambda: p - d / lr,
        "lr_misplaced#2": lambda: p - lr * lr * d,
        "lr_misplaced#3": lambda: lr * (p - d),
        "lr_misplaced#4": lambda: p * (1 - lr * d),
        "lr_misplaced#5": lambda: p - (lr + d),
    }
    return compute_mistaken(f, mistaken, lambda: p - lr * d)


def add_weight_decay(p: Any, g: Any, decay: Any, lr: Any, f: Flags) -> Any:
    """Return the gradient ``g`` plus ``decay`` · ``p``, as the typical mistakes named in ``f``
    change it; ``lr`` is the learning rate, which one of them uses."""
    mistaken: dict[str, Callable[[], Any]] = {
        "decay_ignored": lambda: g,
        "decay_ignored#3": lambda: g,
        "decay_sign": lambda: g - decay * p,
        "decay_l1": lambda: g + decay * np.sign(p),
        "decay_alone": lambda: g + decay,
        "decay_double": lambda: g + 2 * decay * p,
        "decay_form": lambda: g + decay * p / 2,
        "decay_form#2": lambda: g + decay * p * p,
        "decay_form#3": lambda: g + decay * decay * p,
        "decay_with_lr": lambda: g + lr * decay * p,
        "decay_form#4": lambda: g + decay * g,
    }
    return compute_mistaken(f, mistaken, lambda: g + decay * p)


def sgd(p: Any, g: Any, s: State, t: int, h: Mapping[str, Any], f: Flags) -> Any:
    """Return parameter ``p`` after update ``t`` (from 1) of SGD with momentum by gradient ``g``,
    with hyperparameters ``h`` and the typical mistakes named in ``f``; ``s`` is the state, changed
    in place."""
    lr, decay = h["lr"], h["weight_decay"]
    raw = g = transform_gradient(g, s, f)
    before = p
    if "decay_decoupled" in f:
        p = p * (1 - lr * decay)
    elif "decay_afterwards" in f:
        pass
    elif "decay_no_lr" in f:
        p = p * (1 - decay)
    else:
        g = add_weight_decay(p, g, decay, lr, f)
    d = g
    if h["momentum"] or "momentum_fixed" in f:
        d = momentum_direction(before, g, raw, s, h, f)
        if "momentum_ignored#2" in f:
            d = g
        if "lr_in_buffer" in f:
            lr = 1
    p = take_step(p, d, lr, f)
    return p * (1 - h["lr"] * decay) if "decay_afterwards" in f else p


def momentum_direction(p: Any, g: Any, raw: Any, s: State, h: Mapping[str, Any], f: Flags) -> Any:
    """Return the direction of a step with momentum, by the typical mistakes named in ``f``, and
    keep the buffer in the state ``s``.

    Args:
        p: parameter before the update.
        g, raw: gradient with and without weight decay.
        h: hyperparameters.
    """
    kind = type(h["lr"])
    fixed = {"momentum_fixed": lambda: kind(0.9), "momentum_fixed#2": lambda: kind(0.9)}
    mu = compute_mistaken(f, fixed, lambda: h["momentum"])
    lr, first = h["lr"], "b" not in s
    start = {
        "buffer_of_parameter": lambda: p,
        "buffer_of_gradient": lambda: g,
        "buffer_of_gradient#2": lambda: raw,
    }
    old = compute_mistaken(f, start, lambda: g * 0) if first else s["b"]
    if "momentum_ignored" in f:
        old = g * 0
    if "aliased" in f and not first:
        old = raw  # the buffer is the gradient's memory, which has been written to since
    b = next_buffer(old, g, mu, lr, f)
    if "buffer_of_gradient#3" in f and first:
        b = raw
    if "aliased#2" in f and not first:
        g = b = 2 * mu * raw  # buffer and gradient are one tensor, changed in place
    if "first_lost" in f and first:
        b = g * 0
    s["b"] = b
    if "first_skipped" in f and first:
        return g * 0
    if not h["nesterov"]:
        plain = {
            "old_buffer": lambda: old,
            "momentum_direction": lambda: g + mu * b,
            "momentum_direction#2": lambda: g + b,
        }
        return compute_mistaken(f, plain, lambda: b)
    ahead = {
        "nesterov_ignored": lambda: b,
        "nesterov_alone": lambda: mu * b,
        "nesterov_again": lambda: g + mu * (mu * b + g),
        "nesterov_undecayed": lambda: raw + mu * b,
        "nesterov_twice": lambda: b + mu * b,
        "nesterov_factors": lambda: g + b,
        "nesterov_factors#2": lambda: mu * (g + b),
        "nesterov_factors#3": lambda: g - mu * b,
    }
    d = compute_mistaken(f, ahead, lambda: (lr * g if "lr_in_buffer" in f else g) + mu * b)
    if "nesterov_kept" in f:
        s["b"] = d
    return d


def next_buffer(old: Any, g: Any, mu: Any, lr: Any, f: Flags) -> Any:
    """Return ``mu`` · ``old`` + ``g``, the next buffer, as the typical mistakes named in ``f``
    change it."""
    mistaken: dict[str, Callable[[], Any]] = {
        "dampened": lambda: mu * old + (1 - mu) * g,
        "lr_in_buffer": lambda: mu * old + lr * g,
        "momentum_factors": lambda: (1 - mu) * old + mu * g,
        "momentum_factors#2": lambda: old + mu * g,
        "momentum_factors#3": lambda: mu * (old + g),
        "momentum_factors#4": lambda: old + g,
        "momentum_factors#5": lambda: (1 - mu) * old + g,
        "momentum_factors#6": lambda: g - mu * old,
        "momentum_factors#7": lambda: mu * (mu * old + g) + g,
    }
    return compute_mistaken(f, mistaken, lambda: mu * old + g)
