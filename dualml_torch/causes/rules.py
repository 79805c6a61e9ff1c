"""The rules of torch's optimizers written out, each with one thing changed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch


def adam(
    state: dict[str, Any], g: torch.Tensor, group: Mapping[str, Any], form: str, t: int
) -> torch.Tensor:
    (b1, b2), eps = group["betas"], group["eps"]
    m = state["m"] = b1 * state.get("m", torch.zeros_like(g)) + (1 - b1) * g
    v = state["v"] = b2 * state.get("v", torch.zeros_like(g)) + (1 - b2) * g * g
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
    momentum = group["momentum"]
    if not momentum:
        return lr * g
    first = "v" not in state
    old = state.get("v", torch.zeros_like(g))
    inner = lr if form == "lr_inside" else 1.0
    dampening = group["dampening"] if not first or form == "dampened_first" else 0.0
    v = state["v"] = momentum * old + (1 - dampening) * inner * g
    nesterov = (group["nesterov"] or form == "nesterov") and form != "no_nesterov"
    move = inner * g + momentum * (old if form == "old_buffer" else v) if nesterov else v
    return move if form == "lr_inside" else lr * move


def rmsprop(
    state: dict[str, Any], g: torch.Tensor, group: Mapping[str, Any], form: str
) -> torch.Tensor:
    start = torch.ones_like(g) if form == "from_one" else torch.zeros_like(g)
    alpha, eps = group["alpha"], group["eps"]
    v = state["v"] = alpha * state.get("v", start) + (1 - alpha) * g * g
    mean = torch.zeros_like(g)
    if group["centered"]:
        mean = state["g"] = alpha * state.get("g", mean) + (1 - alpha) * g
    width = v - mean * mean
    move = g / ((width + eps).sqrt() if form == "eps_inside" else width.sqrt() + eps)
    if group["momentum"]:
        move = state["m"] = group["momentum"] * state.get("m", torch.zeros_like(g)) + move
    return move


def adagrad(
    state: dict[str, Any], g: torch.Tensor, group: Mapping[str, Any], form: str, lr: float, t: int
) -> torch.Tensor:
    start = group["initial_accumulator_value"] if form != "from_tenth" else 0.1
    v = state["v"] = state.get("v", torch.full_like(g, start)) + g * g
    rate = lr / (1 + (t - 1) * group["lr_decay"])
    return (
        rate * g / ((v + group["eps"]).sqrt() if form == "eps_inside" else v.sqrt() + group["eps"])
    )


def adadelta(
    state: dict[str, Any], g: torch.Tensor, group: Mapping[str, Any], form: str
) -> torch.Tensor:
    rho, eps, none = group["rho"], group["eps"], torch.zeros_like(g)
    old = state.get("v", none)
    v = state["v"] = rho * old + (1 - rho) * g * g
    width, moved = old if form == "old_square" else v, state.get("u", none)
    if form == "eps_outside":
        move = (moved + eps).sqrt() / (width.sqrt() + eps) * g
    else:
        move = (moved + eps).sqrt() / (width + eps).sqrt() * g
    state["u"] = rho * moved + (1 - rho) * move * move
    return move
