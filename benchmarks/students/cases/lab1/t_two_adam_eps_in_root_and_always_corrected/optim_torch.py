"""Lab 1: gradient descent, SGD and Adam as optimizers of PyTorch."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch.optim import Optimizer


class GD(Optimizer):
    """Gradient descent: θ ← θ − η·g.

    Args:
        params: parameters, or groups of them (dicts with ``params`` and ``lr``).
        lr: the step size η.
    """

    def __init__(self, params: Iterable[Any], lr: float) -> None:
        super().__init__(params, {"lr": lr})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        """One update of every parameter that has a gradient."""
        # your code: begin
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is not None:
                    p -= group["lr"] * p.grad
        # your code: end


class SGD(Optimizer):
    """SGD with momentum: g ← g + λθ;  b ← μ·b + g (b = 0 at first);  θ ← θ − η·d,
    where d = g + μ·b with Nesterov's momentum, else d = b.

    Args:
        params: parameters, or groups of them.
        lr: the step size η.
        momentum: μ; without it (0) d = g.
        weight_decay: λ, added to the gradient.
        nesterov: whether to look ahead.
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: float,
        momentum: float = 0.0,
        weight_decay: float = 0.0,
        nesterov: bool = False,
    ) -> None:
        defaults = {
            "lr": lr,
            "momentum": momentum,
            "weight_decay": weight_decay,
            "nesterov": nesterov,
        }
        super().__init__(params, defaults)

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        """One update of every parameter that has a gradient."""
        # your code: begin
        for group in self.param_groups:
            lr, mu, wd = group["lr"], group["momentum"], group["weight_decay"]
            for p in group["params"]:
                if p.grad is None:
                    continue
                g = p.grad + wd * p
                if mu != 0:
                    state = self.state[p]
                    if "b" not in state:
                        state["b"] = torch.zeros_like(p)
                    b = state["b"]
                    b.mul_(mu).add_(g)
                    d = g + mu * b if group["nesterov"] else b
                else:
                    d = g
                p.sub_(lr * d)
        # your code: end


class Adam(Optimizer):
    """Adam: m ← β₁m + (1−β₁)g;  v ← β₂v + (1−β₂)g²;  m̂ = m/(1−β₁ᵗ), v̂ = v/(1−β₂ᵗ);
    θ ← θ − η·m̂/(√v̂ + ε), with t = 1 in the first update.

    Args:
        params: parameters, or groups of them.
        lr: the step size η.
        betas: β₁ and β₂.
        eps: ε.
        weight_decay: λ: added to the gradient (g ← g + λθ) or, decoupled, taken from the
            parameter before the update (θ ← (1 − ηλ)θ).
        decoupled: whether the decay is decoupled (AdamW).
        bias_correction: else m̂ = m and v̂ = v.
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: float,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        decoupled: bool = False,
        bias_correction: bool = True,
    ) -> None:
        defaults = {
            "lr": lr,
            "betas": betas,
            "eps": eps,
            "weight_decay": weight_decay,
            "decoupled": decoupled,
            "bias_correction": bias_correction,
        }
        super().__init__(params, defaults)

    def _one(self, p, lr, betas, eps, weight_decay, decoupled, bias_correction):
        state = self.state[p]
        if "step" not in state:
            state["step"] = 0
            state["exp_avg"] = torch.zeros_like(p)
            state["exp_avg_sq"] = torch.zeros_like(p)
        state["step"] += 1
        g = p.grad.clone()
        if decoupled:
            p.mul_(1 - lr * weight_decay)
        else:
            g += weight_decay * p
        state["exp_avg"] = betas[0] * state["exp_avg"] + (1 - betas[0]) * g
        state["exp_avg_sq"] = betas[1] * state["exp_avg_sq"] + (1 - betas[1]) * g * g
        m_hat = state["exp_avg"] / (1 - betas[0] ** state["step"])
        v_hat = state["exp_avg_sq"] / (1 - betas[1] ** state["step"])
        p -= lr * m_hat / torch.sqrt(v_hat + eps)

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        """One update of every parameter that has a gradient."""
        # your code: begin
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is None:
                    continue
                self._one(p, **{k: v for k, v in group.items() if k != "params"})
        # your code: end
