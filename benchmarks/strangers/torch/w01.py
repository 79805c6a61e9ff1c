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
                    p += group["lr"] * p.grad
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
        if closure is not None:
            with torch.enable_grad():
                closure()
        for group in self.param_groups:
            eta, mu = group["lr"], group["momentum"]
            for w in (q for q in group["params"] if q.grad is not None):
                grad = w.grad.detach()
                if group["weight_decay"] > 0:
                    grad = grad + group["weight_decay"] * w.detach()
                try:
                    buf = self.state[w]["buf"]
                except KeyError:
                    buf = self.state[w]["buf"] = grad.new_zeros(grad.shape)
                buf *= mu
                buf += grad
                update = grad + mu * buf if group["nesterov"] else buf
                w.data -= eta * update
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
        if not hasattr(self, "moments"):
            self.moments = {}
        for group in self.param_groups:
            beta1, beta2 = group["betas"]
            lr, lam = group["lr"], group["weight_decay"]
            for p in group["params"]:
                if p.grad is None:
                    continue
                m, v, t = self.moments.get(p, (0.0, 0.0, 0))
                t = t + 1
                g = p.grad.clone()
                if not group["decoupled"]:
                    g = g + lam * p
                m = beta1 * m + (1 - beta1) * g
                v = beta2 * v + (1 - beta2) * g.square()
                self.moments[p] = (m, v, t)
                c1 = 1 - beta1**t if group["bias_correction"] else 1
                c2 = 1 - beta2**t if group["bias_correction"] else 1
                shrink = 1 - lr * lam if group["decoupled"] else 1
                p.copy_(shrink * p - lr * (m / c1) / ((v / c2).sqrt() + group["eps"]))
        # your code: end
