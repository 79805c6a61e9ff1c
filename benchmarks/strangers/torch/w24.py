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
        for g in self.param_groups:
            for param in g["params"]:
                grad = param.grad
                if grad is None:
                    continue
                param.data.sub_(grad.data * g["lr"])


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
        for group in self.param_groups:
            lr = group["lr"]
            momentum = group["momentum"]
            decay = group["weight_decay"]
            for param in group["params"]:
                if param.grad is None:
                    continue
                grad = param.grad if decay == 0 else param.grad + decay * param
                if momentum == 0:
                    change = grad
                else:
                    last = self.state[param].get("velocity")
                    velocity = grad.clone() if last is None else momentum * last + grad
                    self.state[param]["velocity"] = velocity
                    # nesterov: g + mu*(mu*old + g) = (1 + mu)*g + mu^2*old
                    if not group["nesterov"]:
                        change = velocity
                    elif last is None:
                        change = (1 + momentum) * grad
                    else:
                        change = (1 + momentum) * grad + momentum**2 * last
                param.data = param.data - lr * change


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
        for group in self.param_groups:
            for w in (q for q in group["params"] if q.grad is not None):
                memo = self.state[w]
                if "mv" not in memo:
                    memo["mv"] = torch.zeros((2, *w.shape), dtype=w.dtype, device=w.device)
                    memo["n"] = 0
                memo["n"] += 1
                grad = w.grad.detach().clone()
                if group["weight_decay"] and not group["decoupled"]:
                    grad += group["weight_decay"] * w
                hats = []
                for i, (beta, x) in enumerate(zip(group["betas"], (grad, grad.pow(2)))):
                    memo["mv"][i] = beta * memo["mv"][i] + (1 - beta) * x
                    correction = 1 - beta ** memo["n"] if group["bias_correction"] else 1.0
                    hats.append(memo["mv"][i] / correction)
                w -= group["lr"] * hats[0] / (hats[1].sqrt() + group["eps"])
                if group["weight_decay"] and group["decoupled"]:
                    w *= 1 - group["lr"] * group["weight_decay"]
