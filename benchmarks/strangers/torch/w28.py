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
            params = [p for p in group["params"] if p.grad is not None]
            if params:
                torch._foreach_add_(params, [p.grad for p in params], alpha=-group["lr"])
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
        def direction(p, group):
            """d of the parameter p; keeps b up to date."""
            g = p.grad
            if group["weight_decay"]:
                g = g + p * group["weight_decay"]
            if not group["momentum"]:
                return g
            slot = self.state[p]
            old = slot.setdefault("b", torch.zeros_like(p))
            b = torch.add(g, old, alpha=group["momentum"])
            slot["b"] = b
            if group["nesterov"]:
                return torch.add(g, b, alpha=group["momentum"])
            return b

        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is not None:
                    p.add_(direction(p, group).mul(-group["lr"]))
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
            beta1, beta2 = group["betas"]
            for p in group["params"]:
                if p.grad is None:
                    continue
                st = self.state[p]
                if not st:
                    st["m"], st["v"] = torch.zeros_like(p), torch.zeros_like(p)
                    st["prod1"], st["prod2"] = 1.0, 1.0
                # the powers of the betas are kept instead of the number of the update
                st["prod1"] *= beta1
                st["prod2"] *= beta2
                g = p.grad
                if group["weight_decay"] != 0 and group["decoupled"]:
                    p.data.mul_(1 - group["lr"] * group["weight_decay"])
                elif group["weight_decay"] != 0:
                    g = g + group["weight_decay"] * p.data
                torch.add(beta1 * st["m"], g, alpha=1 - beta1, out=st["m"])
                torch.addcmul(beta2 * st["v"], p.grad, p.grad, value=1 - beta2, out=st["v"])
                if group["bias_correction"]:
                    mhat = st["m"] / (1 - st["prod1"])
                    vhat = st["v"] / (1 - st["prod2"])
                else:
                    mhat = st["m"]
                    vhat = st["v"]
                p.data.addcdiv_(mhat, vhat.sqrt().add(group["eps"]), value=-group["lr"])
        # your code: end
