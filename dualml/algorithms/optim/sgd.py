"""Stochastic gradient descent with momentum, dampening, Nesterov and coupled weight decay."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from dualml.algorithms.optim.base import (
    DECAYED,
    GRADIENT,
    RULES,
    Array,
    OptimizerSpec,
    Params,
    Variants,
)
from dualml.common.errors import UserError


@RULES.register("sgd", 20)
@dataclass(frozen=True, kw_only=True)
class SGD(OptimizerSpec):
    r"""g ← g + λθ;  b_t = μ·b_{t-1} + (1−τ)·g  (b_1 = g);  d = g + μ·b_t if Nesterov else b_t;
    θ_t = θ_{t-1} − η·d.

    Args:
        lr: η > 0.
        momentum: μ in [0, 1]; with 1 no gradient is ever forgotten, which is what a training loop
            of PyTorch computes that leaves out ``zero_grad()``.
        dampening: τ in [0, 1); the first update is not dampened.
        nesterov: look-ahead gradient; needs momentum > 0 and dampening = 0.
        weight_decay: λ ≥ 0, coupled (added to the gradient), for every parameter.

    Raises:
        UserError: a value outside of its range.

    Note:
        Sutskever et al. keep η inside the buffer (v ← μv − ηg); this rule, like PyTorch, keeps
        it outside, which differs once η changes during training. MindSpore's
        ``nn.Momentum(use_nesterov=True)`` ignores the flag on CPU; ours does not use it.

    Source: Robbins & Monro 1951; Polyak 1964; Sutskever et al. 2013, eqs. 1–4.
    """

    variants: ClassVar[Variants] = {
        "sgd": {"lr": 0.05},
        "sgd-decay": {"lr": 0.05, "weight_decay": 0.1},
        "sgd-momentum": {"lr": 0.05, "momentum": 0.8},
        "sgd-dampening": {"lr": 0.05, "momentum": 0.8, "dampening": 0.4, "weight_decay": 0.1},
        "sgd-accumulating": {"lr": 0.05, "momentum": 1.0},
        "sgd-nesterov": {"lr": 0.05, "momentum": 0.8, "nesterov": True, "weight_decay": 0.1},
    }

    momentum: float = 0.0
    dampening: float = 0.0
    nesterov: bool = False
    weight_decay: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require("momentum", 0.0, 1.0, closed_high=True)
        self.require("dampening", 0.0, 1.0)
        self.require("weight_decay", 0.0, float("inf"))
        if self.nesterov and (self.momentum == 0 or self.dampening != 0):
            raise UserError(
                "sgd: nesterov needs momentum > 0 and dampening = 0; received "
                f"momentum={self.momentum}, dampening={self.dampening}"
            )

    @property
    def state_keys(self) -> tuple[str, ...]:
        """Key of the momentum buffer b, ``momentum_buffer``; none without momentum."""
        return ("momentum_buffer",) if self.momentum else ()

    def formulas(self) -> list[str]:
        """Return the gradient, the momentum buffer and the update in LaTeX; decay, dampening and
        Nesterov's step appear only if they are set."""
        gradient = DECAYED if self.weight_decay else GRADIENT
        if not self.momentum:
            return [gradient, r"\theta_t = \theta_{t-1} - \eta \, g_t"]
        share = r"(1 - \tau) \, " if self.dampening else ""
        step = r"( g_t + \mu \, b_t )" if self.nesterov else "b_t"
        return [
            gradient,
            r"b_t = \mu \, b_{t-1} + " + share + r"g_t \quad b_1 = g_1",
            r"\theta_t = \theta_{t-1} - \eta \, " + step,
        ]

    def update_param(
        self, p: Array, g: Array, s: Params, step: int, lr: float
    ) -> tuple[Array, Params]:
        """Return the new parameter and state; nothing is modified. Weight decay is first added to
        the gradient. In step 1 the momentum buffer is this gradient, undampened; without momentum
        the state is empty."""
        g = g + self.weight_decay * p
        if not self.momentum:
            return p - lr * g, {}
        # PyTorch fills the buffer with the undampened first gradient.
        b = g if step == 1 else self.momentum * s["momentum_buffer"] + (1 - self.dampening) * g
        d = g + self.momentum * b if self.nesterov else b
        return p - lr * d, {"momentum_buffer": b}
