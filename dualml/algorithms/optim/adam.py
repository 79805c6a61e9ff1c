"""Adam, with the choices that papers and frameworks make differently as fields."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

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
from dualml.common.errors import UserError


@RULES.register("adam", 30)
@dataclass(frozen=True, kw_only=True)
class Adam(OptimizerSpec):
    r"""m_t = β₁m_{t-1} + (1−β₁)g;  v_t = β₂v_{t-1} + (1−β₂)g²;
    θ_t = θ_{t-1} − η·m̂ / (√v̂ + ε)  with  m̂ = m_t/(1−β₁ᵗ), v̂ = v_t/(1−β₂ᵗ).

    Args:
        lr: η > 0.
        betas: (β₁, β₂), each in [0, 1).
        eps: ε ≥ 0.
        eps_form: ``"outside"`` is the formula above (the paper's Algorithm 1; PyTorch);
            ``"hat"`` is θ_t = θ_{t-1} − η·√(1−β₂ᵗ)/(1−β₁ᵗ)·m_t/(√v_t + ε), the "epsilon hat"
            at the end of the paper's section 2, which MindSpore's ``nn.Adam`` uses.
        bias_correction: divide by 1−βᵗ; without it both denominators are 1.
        weight_decay: λ ≥ 0; g ← g + λθ, coupled (use `AdamW` for the decoupled form).

    Raises:
        UserError: a value outside of its range.

    Source: Kingma & Ba 2015, "Adam: A Method for Stochastic Optimization", Algorithm 1.
    """

    variants: ClassVar[Variants] = {
        "adam": {"lr": 0.01},
        "adam-eps": {"lr": 0.01, "betas": (0.8, 0.95), "eps": 1e-3},
        "adam-hat": {"lr": 0.01, "betas": (0.8, 0.95), "eps": 1e-3, "eps_form": "hat"},
        "adam-biased": {"lr": 0.01, "eps": 1e-3, "bias_correction": False},
        "adam-decay": {"lr": 0.01, "eps": 1e-3, "weight_decay": 0.1},
        "adam-no-averages": {"lr": 0.01, "betas": (0.0, 0.0), "eps": 1e-3},
        "adam-no-momentum": {"lr": 0.01, "betas": (0.0, 0.999)},
    }

    betas: tuple[float, float] = (0.9, 0.999)
    eps: float = 1e-8
    eps_form: Literal["outside", "hat"] = "outside"
    bias_correction: bool = True
    weight_decay: float = 0.0

    #: Decoupled decay shrinks the parameter; coupled decay is added to the gradient.
    decoupled = False

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require("eps", 0.0, np.inf)
        self.require("weight_decay", 0.0, np.inf)
        pair = isinstance(self.betas, tuple) and len(self.betas) == 2
        if not pair or not all(type(b) in (int, float) and 0 <= b < 1 for b in self.betas):
            raise UserError(
                f"{self.name}: betas must be two numbers in [0, 1); received betas={self.betas}"
            )
        if self.eps_form not in ("outside", "hat"):
            raise UserError(
                f"{self.name}: eps_form must be 'outside' or 'hat'; received {self.eps_form!r}"
            )

    @property
    def state_keys(self) -> tuple[str, ...]:
        """Keys of the first and second moments m and v, ``exp_avg`` and ``exp_avg_sq``."""
        return ("exp_avg", "exp_avg_sq")

    def formulas(self) -> list[str]:
        """Return the gradient, both moments and the update in LaTeX, in the form of ε, bias
        correction and weight decay that the fields select."""
        old, gradient = r"\theta_{t-1}", DECAYED if self.weight_decay else GRADIENT
        if self.decoupled and self.weight_decay:
            old, gradient = r"(1 - \eta \lambda ) \, \theta_{t-1}", GRADIENT
        lines = [
            gradient,
            r"m_t = \beta_1 m_{t-1} + (1 - \beta_1) \, g_t",
            r"v_t = \beta_2 v_{t-1} + (1 - \beta_2) \, g_t^2",
        ]
        step = r"\frac{m_t}{\sqrt{v_t} + \varepsilon}"
        if not self.bias_correction:
            return [*lines, rf"\theta_t = {old} - \eta {step}"]
        if self.eps_form == "hat":
            scale = r"\frac{\sqrt{1 - \beta_2^t}}{1 - \beta_1^t}"
            return [*lines, rf"\theta_t = {old} - \eta {scale} \cdot {step}"]
        return [
            *lines,
            r"\hat{m}_t = \frac{m_t}{1 - \beta_1^t} \quad \hat{v}_t = \frac{v_t}{1 - \beta_2^t}",
            rf"\theta_t = {old} - \eta \frac{{\hat{{m}}_t}}{{\sqrt{{\hat{{v}}_t}} + \varepsilon}}",
        ]

    def update_param(
        self, p: Array, g: Array, s: Params, step: int, lr: float
    ) -> tuple[Array, Params]:
        """Update both moments; return the new parameter and the new state, the moments. Weight
        decay shrinks ``p`` if `decoupled`, else it is added to ``g``; no argument is modified."""
        if self.decoupled:
            p = p * (1 - lr * self.weight_decay)
        else:
            g = g + self.weight_decay * p
        b1, b2 = self.betas
        m = b1 * s["exp_avg"] + (1 - b1) * g
        v = b2 * s["exp_avg_sq"] + (1 - b2) * g * g
        c1, c2 = (1 - b1**step, 1 - b2**step) if self.bias_correction else (1.0, 1.0)
        if self.eps_form == "outside":
            d = (m / c1) / (np.sqrt(v / c2) + self.eps)
        else:
            d = np.sqrt(c2) / c1 * m / (np.sqrt(v) + self.eps)
        return p - lr * d, {"exp_avg": m, "exp_avg_sq": v}
