"""Lab 1: gradient descent, SGD and Adam as optimizers of MindSpore."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import numpy as np
from mindspore import Parameter, ParameterTuple, Tensor, nn, ops


class GD(nn.Optimizer):
    """Gradient descent: θ ← θ − η·g.

    Args:
        params: parameters.
        learning_rate: the step size η, or one for every update.
    """

    def __init__(self, params: Iterable[Any], learning_rate: Any) -> None:
        super().__init__(learning_rate, list(params))

    def construct(self, gradients):
        """One update of every parameter; ``gradients`` are in the parameters' order."""
        lr = self.get_lr()
        new = [p - lr * g for p, g in zip(self.parameters, gradients)]
        for p, n in zip(self.parameters, new):
            ops.assign(p, n)
        self.global_step += self.global_step_increase_tensor
        return tuple(new)


class SGD(nn.Optimizer):
    """SGD with momentum: g ← g + λθ;  b ← μ·b + g (b = 0 at first);  θ ← θ − η·d,
    where d = g + μ·b with Nesterov's momentum, else d = b.

    Args:
        params: parameters.
        learning_rate: the step size η, or one for every update.
        momentum: μ; without it (0) d = g.
        weight_decay: λ, added to the gradient of every parameter.
        nesterov: whether to look ahead.
    """

    def __init__(
        self,
        params: Iterable[Any],
        learning_rate: Any,
        momentum: float = 0.0,
        weight_decay: float = 0.0,
        nesterov: bool = False,
    ) -> None:
        super().__init__(learning_rate, list(params))
        self.momentum, self.decay, self.nesterov = momentum, weight_decay, nesterov
        self.state = ParameterTuple(
            [
                Parameter(Tensor(np.zeros(p.shape), p.dtype), name="state" + str(k))
                for k, p in enumerate(self.parameters)
            ]
        )

    def construct(self, gradients):
        """One update of every parameter; ``gradients`` are in the parameters' order."""
        lr = self.get_lr()
        for k, (p, g) in enumerate(zip(self.parameters, gradients)):
            if self.decay:
                g = g + self.decay * p
            d = g
            if self.momentum:
                b = self.state[k] * self.momentum + g
                ops.assign(self.state[k], b)
                d = g + self.momentum * b if self.nesterov else b
            ops.assign(p, p - lr * d)
        ops.assign_add(self.global_step, self.global_step_increase_tensor)


class Adam(nn.Optimizer):
    """Adam: m ← β₁m + (1−β₁)g;  v ← β₂v + (1−β₂)g²;  m̂ = m/(1−β₁ᵗ), v̂ = v/(1−β₂ᵗ);
    θ ← θ − η·m̂/(√v̂ + ε), with t = 1 in the first update.

    Args:
        params: parameters.
        learning_rate: the step size η, or one for every update.
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
        learning_rate: Any,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        decoupled: bool = False,
        bias_correction: bool = True,
    ) -> None:
        super().__init__(learning_rate, list(params))
        self.beta1, self.beta2 = betas
        self.eps, self.decay, self.decoupled = eps, weight_decay, decoupled
        self.bias_correction = bias_correction
        self.m = ParameterTuple(
            [
                Parameter(Tensor(np.zeros(p.shape), p.dtype), name="m" + str(k))
                for k, p in enumerate(self.parameters)
            ]
        )
        self.v = ParameterTuple(
            [
                Parameter(Tensor(np.zeros(p.shape), p.dtype), name="v" + str(k))
                for k, p in enumerate(self.parameters)
            ]
        )

    def construct(self, gradients):
        """One update of every parameter; ``gradients`` are in the parameters' order."""
        lr = self.get_lr()
        t = self.global_step.sum() + 1
        for k, (p, g) in enumerate(zip(self.parameters, gradients)):
            if self.decay and not self.decoupled:
                g = g + self.decay * p
            m = self.beta1 * self.m[k] + (1 - self.beta1) * g
            v = self.beta2 * self.v[k] + (1 - self.beta2) * g * g
            ops.assign(self.m[k], m)
            ops.assign(self.v[k], v)
            if self.bias_correction:
                m = m / (1 - ops.exp(t * math.log(self.beta1)))
                v = v / (1 - ops.exp(t * math.log(self.beta2)))
            update = m / (ops.sqrt(v) + self.eps)
            if self.decay and self.decoupled:
                # (1 - lr*decay)*p - lr*update, in one go
                update = update + self.decay * p
            ops.assign_sub(p, lr * update)
        self.global_step += 1
