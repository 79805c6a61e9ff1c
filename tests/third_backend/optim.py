"""The update rules in float32: each function updates one tensor and its state in place."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from dualml.algorithms.optim import OptimizerSpec
from dualml.common.errors import Unsupported

Arrays = dict[str, np.ndarray]


def sgd(r: Any, p: np.ndarray, g: np.ndarray, s: Arrays, t: int, lr: float) -> None:
    if r.weight_decay:
        g = g + r.weight_decay * p
    if r.momentum:
        b = s["momentum_buffer"]
        b *= r.momentum
        b += g if t == 1 else (1 - r.dampening) * g
        g = g + r.momentum * b if r.nesterov else b
    p -= lr * g


def gd(r: Any, p: np.ndarray, g: np.ndarray, s: Arrays, t: int, lr: float) -> None:
    p -= lr * g


def adam(r: Any, p: np.ndarray, g: np.ndarray, s: Arrays, t: int, lr: float) -> None:
    (b1, b2), m, v = r.betas, s["exp_avg"], s["exp_avg_sq"]
    if r.name == "adamw":
        p *= 1 - lr * r.weight_decay
    elif r.weight_decay:
        g = g + r.weight_decay * p
    m *= b1
    m += (1 - b1) * g
    v *= b2
    v += (1 - b2) * (g * g)
    c1, c2 = (1 - b1**t, 1 - b2**t) if r.bias_correction else (1.0, 1.0)
    eps = r.eps * math.sqrt(c2) if r.eps_form == "outside" else r.eps
    p -= lr * math.sqrt(c2) / c1 * m / (np.sqrt(v) + eps)


def rmsprop(r: Any, p: np.ndarray, g: np.ndarray, s: Arrays, t: int, lr: float) -> None:
    if r.weight_decay:
        g = g + r.weight_decay * p
    v = s["square_avg"]
    v *= r.alpha
    v += (1 - r.alpha) * (g * g)
    root = v
    if r.centered:
        mean = s["grad_avg"]
        mean *= r.alpha
        mean += (1 - r.alpha) * g
        root = v - mean * mean
    d = g / (np.sqrt(root) + r.eps)
    if r.momentum:
        b = s["momentum_buffer"]
        b *= r.momentum
        b += d
        d = b
    p -= lr * d


def adagrad(r: Any, p: np.ndarray, g: np.ndarray, s: Arrays, t: int, lr: float) -> None:
    if r.weight_decay:
        g = g + r.weight_decay * p
    s["sum"] += g * g
    p -= lr / (1 + (t - 1) * r.lr_decay) * g / (np.sqrt(s["sum"]) + r.eps)


UPDATES = {
    "gd": gd,
    "sgd": sgd,
    "adam": adam,
    "adamw": adam,
    "rmsprop": rmsprop,
    "adagrad": adagrad,
}


class Optimizer:
    """An optimizer that applies one rule to float32 parameters and changes them in place."""

    def __init__(self, rule: OptimizerSpec, own: Arrays) -> None:
        if rule.name not in UPDATES:
            raise Unsupported(f"single does not implement the update rule {rule.name!r}")
        self.rule, self.own = rule, own
        self.load({}, 0)

    def update(self, gradients: Mapping[str, np.ndarray], step: int, lr: float) -> None:
        """Apply update number ``step`` (from 1) to all parameters."""
        for name, p in self.own.items():
            slots = {slot: named[name] for slot, named in self.slots.items()}
            UPDATES[self.rule.name](self.rule, p, gradients[name], slots, step, lr)

    def state(self) -> dict[str, Arrays]:
        """Return a copy of the state: state key → parameter name → array."""
        return {slot: {n: a.copy() for n, a in named.items()} for slot, named in self.slots.items()}

    def load(self, state: Mapping[str, Mapping[str, np.ndarray]], step: int) -> None:
        """Load the state after update ``step``; for step 0 start from the rule's initial state."""
        start = state if step else self.rule.init(self.own)
        self.slots = {
            slot: {name: np.array(start[slot][name], np.float32) for name in self.own}
            for slot in self.rule.state_keys
        }
