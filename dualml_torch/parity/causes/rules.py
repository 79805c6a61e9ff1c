"""The rules of torch's optimizers written out, each with one change.

Their lines are mutated like those of a user's own optimizer (`dualml_torch.parity.causes.lines`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch


@dataclass(frozen=True)
class RuleVariant:
    """An update rule of torch with one change.

    Args:
        rule: name of the rule, one of ``adam``, ``sgd``, ``rmsprop``, ``adadelta`` and ``adagrad``.
        form: name of the change, such as ``eps_inside``; a name that the rule does not know changes
            nothing.
        decoupled: whether weight decay is decoupled (Loshchilov & Hutter, 2019).
    """

    rule: str
    form: str
    decoupled: bool


def update_parameter(
    variant: RuleVariant,
    p: torch.Tensor,
    g: torch.Tensor,
    group: Mapping[str, Any],
    state: dict[str, Any],
    t: int,
) -> None:
    """Update one parameter ``p`` and its ``state`` in place by the gradient ``g``, which is
    unchanged; a rule of unknown name is Adagrad.

    Args:
        group: settings of the parameter, as in a group of torch's optimizer.
        state: averages of the rule, empty before the first update.
        t: number of updates of the parameter, this one included; one less for ``count_from_zero``.
    """
    rule, form, decoupled = variant.rule, variant.form, variant.decoupled
    lr, decay = float(group["lr"]), float(group.get("weight_decay", 0.0))
    if decoupled and form != "decay_after" and decay:
        p.mul_(1 - lr * decay)
    elif not decoupled and form != "decay_after" and decay:
        g = g + decay * p
    if rule == "adam":
        step = adam(state, g, group, form, t) * lr
    elif rule == "sgd":
        step = sgd(state, g, group, form, lr)
    elif rule == "rmsprop":
        step = rmsprop(state, g, group, form) * lr
    elif rule == "adadelta":
        step = adadelta(state, g, group, form) * lr
    else:
        step = adagrad(state, g, group, form, lr, t)
    p.sub_(step)
    if form == "decay_after":
        p.mul_(1 - lr * decay) if decoupled else p.sub_(lr * decay * p)


def adam(
    state: dict[str, Any], g: torch.Tensor, group: Mapping[str, Any], form: str, t: int
) -> torch.Tensor:
    """Return Adam's step without the learning rate; update its averages in ``state``."""
    (b1, b2), eps = group["betas"], group["eps"]
    old_m = (state["m"] if "m" in state else torch.zeros_like(g)).clone()
    old_v = (state["v"] if "v" in state else torch.zeros_like(g)).clone()
    m = state["m"] = b1 * old_m + (1 - b1) * g
    v = state["v"] = b2 * old_v + (1 - b2) * (g * g)
    none = form == "no_bias_correction" or t < 1
    c1 = 1.0 if none or form == "no_first_correction" else 1 - b1**t
    c2 = 1.0 if none or form == "no_second_correction" else 1 - b2**t
    if form == "eps_hat":
        return (c2**0.5 / c1) * m / (v.sqrt() + eps)
    if form == "eps_inside":
        return (m / c1) / (v / c2 + eps).sqrt()
    return (m / c1) / ((v / c2).sqrt() + eps)


def sgd(
    state: dict[str, Any], g: torch.Tensor, group: Mapping[str, Any], form: str, lr: float
) -> torch.Tensor:
    """Return the step of SGD, learning rate included; update its momentum in ``state``."""
    momentum = group["momentum"]
    if not momentum:
        return lr * g
    first = "v" not in state
    old = (state["v"] if "v" in state else torch.zeros_like(g)).clone()
    inner = lr if form == "lr_inside" else 1.0
    dampening = group["dampening"] if not first or form == "dampened_first" else 0.0
    v = state["v"] = momentum * old + (1 - dampening) * inner * g
    nesterov = (group["nesterov"] or form == "nesterov") and form != "no_nesterov"
    move = inner * g + momentum * (old if form == "old_buffer" else v) if nesterov else v
    return move if form == "lr_inside" else lr * move


def rmsprop(
    state: dict[str, Any], g: torch.Tensor, group: Mapping[str, Any], form: str
) -> torch.Tensor:
    """Return RMSprop's step without the learning rate; update its averages in ``state``."""
    start = torch.ones_like(g) if form == "from_one" else torch.zeros_like(g)
    alpha, eps = group["alpha"], group["eps"]
    old = state.get("v", start).clone()
    v = width = state["v"] = alpha * old + (1 - alpha) * (g * g)
    if group["centered"]:
        old_mean = state["g"] if "g" in state else torch.zeros_like(g)
        mean = state["g"] = alpha * old_mean + (1 - alpha) * g
        width = v - mean * mean
    move = g / ((width + eps).sqrt() if form == "eps_inside" else width.sqrt() + eps)
    if group["momentum"]:
        buffer = state["m"] if "m" in state else torch.zeros_like(g)
        move = state["m"] = group["momentum"] * buffer + move
    return move


def adagrad(
    state: dict[str, Any], g: torch.Tensor, group: Mapping[str, Any], form: str, lr: float, t: int
) -> torch.Tensor:
    """Return the step of Adagrad, learning rate included; update its sum of squares in
    ``state``."""
    start = group["initial_accumulator_value"] if form != "from_tenth" else 0.1
    old = (state["v"] if "v" in state else torch.full_like(g, start)).clone()
    v = state["v"] = old + g * g
    rate = lr / (1 + (t - 1) * group["lr_decay"])
    return (
        rate * g / ((v + group["eps"]).sqrt() if form == "eps_inside" else v.sqrt() + group["eps"])
    )


def adadelta(
    state: dict[str, Any], g: torch.Tensor, group: Mapping[str, Any], form: str
) -> torch.Tensor:
    """Return Adadelta's step without the learning rate; update its averages in ``state``."""
    rho, eps = group["rho"], group["eps"]
    old = (state["v"] if "v" in state else torch.zeros_like(g)).clone()
    moved = (state["u"] if "u" in state else torch.zeros_like(g)).clone()
    v = state["v"] = rho * old + (1 - rho) * (g * g)
    width = old if form == "old_square" else v
    if form == "eps_outside":
        move = (moved + eps).sqrt() / (width.sqrt() + eps) * g
    else:
        move = (moved + eps).sqrt() / (width + eps).sqrt() * g
    state["u"] = rho * moved + (1 - rho) * (move * move)
    return move
