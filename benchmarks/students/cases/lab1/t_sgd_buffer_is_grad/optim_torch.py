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
            for p in group["params"]:
                if p.grad is None:
                    continue
                g = p.grad
                if group["weight_decay"] != 0:
                    g = g + group["weight_decay"] * p
                if group["momentum"] != 0:
                    state = self.state[p]
                    if "momentum_buffer" not in state:
                        buf = state["momentum_buffer"] = g
                    else:
                        buf = state["momentum_buffer"]
                        buf.mul_(group["momentum"]).add_(g)
                    if group["nesterov"]:
                        g = g + group["momentum"] * buf
                    else:
                        g = buf
                p.add_(g, alpha=-group["lr"])
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

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        """One update of every parameter that has a gradient."""
        # your code: begin
        for group in self.param_groups:
            lr, eps, wd = group["lr"], group["eps"], group["weight_decay"]
            beta1, beta2 = group["betas"]
            for p in group["params"]:
                if p.grad is None:
                    continue
                g = p.grad
                state = self.state[p]
                if len(state) == 0:
                    state["t"] = 0
                    state["m"] = torch.zeros_like(p)
                    state["v"] = torch.zeros_like(p)
                state["t"] += 1
                t, m, v = state["t"], state["m"], state["v"]
                if group["decoupled"]:
                    p.mul_(1 - lr * wd)
                else:
                    g = g + wd * p
                m.mul_(beta1).add_(g, alpha=1 - beta1)
                v.mul_(beta2).addcmul_(g, g, value=1 - beta2)
                if group["bias_correction"]:
                    m_hat = m / (1 - beta1**t)
                    v_hat = v / (1 - beta2**t)
                else:
                    m_hat, v_hat = m, v
                p.sub_(lr * m_hat / (v_hat.sqrt() + eps))
        # your code: end
