"""The Adagrad optimizer."""

from __future__ import annotations

from collections.abc import Mapping
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
    State,
    Variants,
)


@RULES.register("adagrad", 60)
@dataclass(frozen=True, kw_only=True)
class Adagrad(OptimizerSpec):
    r"""G_t = G_{t-1} + g²;  θ_t = θ_{t-1} − η_t·g / (√G_t + ε)  with  η_t = η/(1 + (t−1)·γ).

    Args:
        lr: η > 0.
        lr_decay: γ ≥ 0.
        eps: ε ≥ 0.
        initial_accumulator: G_0 ≥ 0 (PyTorch 0, MindSpore's ``nn.Adagrad`` 0.1).
        weight_decay: λ ≥ 0, coupled.

    Source: Duchi, Hazan & Singer 2011, "Adaptive Subgradient Methods", Figure 1 (diagonal).
    """

    variants: ClassVar[Variants] = {
        "adagrad": {"lr": 0.05, "eps": 1e-3},
        "adagrad-all": {
            "lr": 0.05,
            "eps": 1e-3,
            "lr_decay": 0.1,
            "initial_accumulator": 0.1,
            "weight_decay": 0.1,
        },
    }

    lr_decay: float = 0.0
    eps: float = 1e-10
    initial_accumulator: float = 0.0
    weight_decay: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        for field in ("lr_decay", "eps", "initial_accumulator", "weight_decay"):
            self.require(field, 0.0, np.inf)

    @property
    def state_keys(self) -> tuple[str, ...]:
        """Key of the accumulated squared gradients G, ``sum``."""
        return ("sum",)

    def init(self, params: Mapping[str, Array]) -> State:
        """Return the state before the first update: every element of G is ``initial_accumulator``,
        in float64."""
        return {"sum": {n: np.full(p.shape, self.initial_accumulator) for n, p in params.items()}}

    def formulas(self) -> list[str]:
        """Return the gradient, the accumulator and the update in LaTeX; γ and λ appear only if they
        are set."""
        rate = r"\frac{\eta}{1 + (t-1) \, \gamma}" if self.lr_decay else r"\eta"
        step = r"\frac{g_t}{\sqrt{G_t} + \varepsilon}"
        return [
            DECAYED if self.weight_decay else GRADIENT,
            r"G_t = G_{t-1} + g_t^2",
            rf"\theta_t = \theta_{{t-1}} - {rate} \cdot {step}",
        ]

    def update_param(
        self, p: Array, g: Array, s: Params, step: int, lr: float
    ) -> tuple[Array, Params]:
        """Add g², with g the gradient plus weight decay, to G; return the parameter moved by η_t·g
        / (√G + ε), and the new state ``sum``. No argument is modified."""
        g = g + self.weight_decay * p
        total = s["sum"] + g * g
        rate = lr / (1 + (step - 1) * self.lr_decay)
        return p - rate * g / (np.sqrt(total) + self.eps), {"sum": total}
