"""RMSprop, plain, centered and with momentum."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from dualml.algorithms.optim.base import (
    DECAYED,
    GRADIENT,
    RULES,
    Array,
    OptimizerSpec,
    Params,
    Variants,
)


@RULES.register("rmsprop", 50)
@dataclass(frozen=True, kw_only=True)
class RMSprop(OptimizerSpec):
    r"""v_t = αv_{t-1} + (1−α)g²;  d = g / (√v_t + ε);  θ_t = θ_{t-1} − η·d.

    Centered: ḡ_t = αḡ_{t-1} + (1−α)g and v_t − ḡ_t² under the root (Graves 2013, eqs. 38–41).
    Momentum: b_t = μb_{t-1} + d and θ_t = θ_{t-1} − η·b_t.

    Args:
        lr: η > 0.
        alpha: α in [0, 1).
        eps: ε ≥ 0, *outside* the root. MindSpore's ``nn.RMSProp`` puts it inside and starts v at 1.
        momentum: μ in [0, 1).
        centered: subtract the squared mean gradient.
        weight_decay: λ ≥ 0, coupled.

    Source: Tieleman & Hinton 2012, *Lecture 6.5*; Graves 2013, "Generating Sequences …".
    """

    variants: ClassVar[Variants] = {
        "rmsprop": {"lr": 0.01, "alpha": 0.999, "eps": 1e-3},
        "rmsprop-momentum": {"lr": 0.01, "alpha": 0.9, "eps": 1e-3, "momentum": 0.8},
        "rmsprop-centered": {
            "lr": 0.01,
            "alpha": 0.9,
            "eps": 1e-3,
            "centered": True,
            "weight_decay": 0.1,
        },
        "rmsprop-all": {
            "lr": 0.01,
            "alpha": 0.9,
            "eps": 1e-3,
            "centered": True,
            "momentum": 0.8,
        },
    }

    alpha: float = 0.99
    eps: float = 1e-8
    momentum: float = 0.0
    centered: bool = False
    weight_decay: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require("alpha", 0.0, 1.0)
        self.require("eps", 0.0, np.inf)
        self.require("momentum", 0.0, 1.0)
        self.require("weight_decay", 0.0, np.inf)

    @property
    def state_keys(self) -> tuple[str, ...]:
        """Keys of the state: ``square_avg``, also ``grad_avg`` if centered, and ``momentum_buffer``
        with momentum."""
        kept = {"square_avg": True, "grad_avg": self.centered, "momentum_buffer": self.momentum > 0}
        return tuple(slot for slot, used in kept.items() if used)

    def formulas(self) -> list[str]:
        """Return the gradient, the averages and the update in LaTeX; centering, momentum and decay
        appear only if they are set."""
        lines = [
            DECAYED if self.weight_decay else GRADIENT,
            r"v_t = \alpha v_{t-1} + (1 - \alpha) \, g_t^2",
        ]
        root = "v_t"
        if self.centered:
            lines.append(r"\bar{g}_t = \alpha \bar{g}_{t-1} + (1 - \alpha) \, g_t")
            root = r"v_t - \bar{g}_t^2"
        d = rf"\frac{{g_t}}{{\sqrt{{{root}}} + \varepsilon}}"
        if not self.momentum:
            return [*lines, rf"\theta_t = \theta_{{t-1}} - \eta {d}"]
        buffer = rf"b_t = \mu \, b_{{t-1}} + {d}"
        return [*lines, buffer, r"\theta_t = \theta_{t-1} - \eta \, b_t"]

    def update_param(
        self, p: Array, g: Array, s: Params, step: int, lr: float
    ) -> tuple[Array, Params]:
        """Update the averages and, with momentum, its buffer, after weight decay is added to ``g``;
        return the new parameter and the new state. No argument is modified."""
        g = g + self.weight_decay * p
        v = self.alpha * s["square_avg"] + (1 - self.alpha) * g * g
        after, root = {"square_avg": v}, v
        if self.centered:
            mean = self.alpha * s["grad_avg"] + (1 - self.alpha) * g
            after["grad_avg"], root = mean, v - mean * mean
        d = g / (np.sqrt(root) + self.eps)
        if self.momentum:
            d = after["momentum_buffer"] = self.momentum * s["momentum_buffer"] + d
        return p - lr * d, after
