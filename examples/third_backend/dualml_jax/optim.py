"""The update rules of `dualml.algorithms.optim` in JAX: each returns a new parameter and its new
state."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax.numpy as jnp

from dualml.algorithms.optim import OptimizerSpec

Named = dict[str, Any]
Updated = tuple[Any, Named]


def sgd(r: Any, p: Any, g: Any, s: Named, t: int, lr: float) -> Updated:
    """Update one parameter by SGD with momentum, dampening, Nesterov and weight decay."""
    g = g + r.weight_decay * p
    if not r.momentum:
        return p - lr * g, {}
    b = r.momentum * s["momentum_buffer"] + (g if t == 1 else (1 - r.dampening) * g)
    return p - lr * (g + r.momentum * b if r.nesterov else b), {"momentum_buffer": b}


def gd(r: Any, p: Any, g: Any, s: Named, t: int, lr: float) -> Updated:
    """Update one parameter by plain gradient descent."""
    return p - lr * g, {}


def adam(r: Any, p: Any, g: Any, s: Named, t: int, lr: float) -> Updated:
    """Update one parameter by Adam, or by AdamW if the rule's weight decay is decoupled."""
    if r.decoupled:
        p = p * (1 - lr * r.weight_decay)
    else:
        g = g + r.weight_decay * p
    b1, b2 = r.betas
    m = b1 * s["exp_avg"] + (1 - b1) * g
    v = b2 * s["exp_avg_sq"] + (1 - b2) * g * g
    c1, c2 = (1 - b1**t, 1 - b2**t) if r.bias_correction else (1.0, 1.0)
    eps = r.eps * c2**0.5 if r.eps_form == "outside" else r.eps
    return p - lr * c2**0.5 / c1 * m / (jnp.sqrt(v) + eps), {"exp_avg": m, "exp_avg_sq": v}


def rmsprop(r: Any, p: Any, g: Any, s: Named, t: int, lr: float) -> Updated:
    """Update one parameter by RMSprop, optionally centered and with momentum."""
    g = g + r.weight_decay * p
    v = r.alpha * s["square_avg"] + (1 - r.alpha) * g * g
    after, root = {"square_avg": v}, v
    if r.centered:
        mean = after["grad_avg"] = r.alpha * s["grad_avg"] + (1 - r.alpha) * g
        root = v - mean * mean
    d = g / (jnp.sqrt(root) + r.eps)
    if r.momentum:
        d = after["momentum_buffer"] = r.momentum * s["momentum_buffer"] + d
    return p - lr * d, after


def adagrad(r: Any, p: Any, g: Any, s: Named, t: int, lr: float) -> Updated:
    """Update one parameter by Adagrad."""
    g = g + r.weight_decay * p
    total = s["sum"] + g * g
    return p - lr / (1 + (t - 1) * r.lr_decay) * g / (jnp.sqrt(total) + r.eps), {"sum": total}


RULES = (gd, sgd, adam, rmsprop, adagrad)
UPDATES = {rule.__name__: rule for rule in RULES} | {"adamw": adam}


def update(
    rule: OptimizerSpec,
    own: Named,
    slots: dict[str, Named],
    gradients: Mapping[str, Any],
    t: int,
    lr: float,
) -> None:
    """Apply update number ``t`` (from 1) to all parameters; the two dictionaries are updated in
    place."""
    for name, g in gradients.items():
        before = {slot: slots[slot][name] for slot in rule.state_keys}
        own[name], after = UPDATES[rule.name](rule, own[name], g, before, t, lr)
        for slot, value in after.items():
            slots[slot][name] = value
