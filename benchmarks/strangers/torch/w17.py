"""Lab 1: gradient descent, SGD and Adam as optimizers of PyTorch."""

from __future__ import annotations

import math
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
            lr = group["lr"]
            for p in group["params"]:
                if p.grad is None:
                    continue
                p.add_(p.grad, alpha=-lr)
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
            lr, mu, lam = group["lr"], group["momentum"], group["weight_decay"]
            for p in group["params"]:
                if p.grad is None:
                    continue
                g = p.grad + lam * p
                st = self.state[p]
                st["b"] = g.clone() if "b" not in st else mu * st["b"] + g
                if group["nesterov"]:
                    d = p.grad + mu * st["b"]
                else:
                    d = st["b"]
                p -= lr * d
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
            beta_1, beta_2 = group["betas"]
            for param in group["params"]:
                grad = param.grad
                if grad is None:
                    continue
                st = self.state[param]
                if "t" not in st:
                    st["t"], st["first"], st["second"] = 0, None, None
                st["t"] = t = st["t"] + 1
                lr, wd = group["lr"], group["weight_decay"]
                old = param.detach().clone()
                if not group["decoupled"]:
                    grad = torch.add(grad, old, alpha=wd)
                else:
                    old = old - lr * wd * old
                if t == 1:
                    st["first"] = (1 - beta_1) * grad
                    st["second"] = (1 - beta_2) * grad * grad
                else:
                    st["first"] = torch.lerp(grad, st["first"], beta_1)
                    st["second"] = torch.lerp(grad * grad, st["second"], beta_2)
                m, v = st["first"].clone(), st["second"].clone()
                if group["bias_correction"]:
                    m.div_(1 - math.pow(beta_1, t))
                    v.div_(1 - math.pow(beta_2, t))
                param.data = old - lr * torch.div(m, v.sqrt_().add_(group["eps"]))
        # your code: end
