"""Lab 1: gradient descent, SGD and Adam as optimizers of MindSpore."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import mindspore as ms
from mindspore import Parameter, Tensor, nn, ops


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
        # your code: begin
        lr = self.get_lr()
        ops.assign_add(self.global_step, self.global_step_increase_tensor)
        for p, g in zip(self.parameters, gradients):
            ops.assign_sub(p, lr * g)
        # your code: end


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
        # your code: begin
        self.b = self.parameters.clone(prefix="b", init="zeros")
        # your code: end

    def construct(self, gradients):
        """One update of every parameter; ``gradients`` are in the parameters' order."""
        # your code: begin
        lr = self.get_lr()
        ops.assign_add(self.global_step, self.global_step_increase_tensor)
        for i in range(len(self.parameters)):
            p = self.parameters[i]
            g = gradients[i] + self.decay * p
            d = g
            if self.momentum != 0:
                b = self.momentum * self.b[i] + g
                ops.assign(self.b[i], b)
                d = gradients[i] + self.momentum * b if self.nesterov else b
            ops.assign_sub(p, lr * d)
        # your code: end


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
        # your code: begin
        self.m = self.parameters.clone(prefix="m", init="zeros")
        self.v = self.parameters.clone(prefix="v", init="zeros")
        self.t = Parameter(Tensor(0.0, ms.float32), name="adam_t")
        # your code: end

    def construct(self, gradients):
        """One update of every parameter; ``gradients`` are in the parameters' order."""
        # your code: begin
        lr = self.get_lr()
        ops.assign_add(self.global_step, self.global_step_increase_tensor)
        t = self.t + 1.0
        ops.assign(self.t, t)
        for i in range(len(self.parameters)):
            p = self.parameters[i]
            g = gradients[i]
            theta = p
            if self.decoupled:
                theta = p * (1.0 - lr * self.decay)
            else:
                g = g + self.decay * p
            m = self.beta1 * self.m[i] + (1.0 - self.beta1) * g
            v = self.beta2 * self.v[i] + (1.0 - self.beta2) * g * g
            ops.assign(self.m[i], m)
            ops.assign(self.v[i], v)
            if self.bias_correction:
                m = m / (1.0 - ops.pow(Tensor(self.beta1, ms.float32), t))
                v = v / (1.0 - ops.pow(Tensor(self.beta2, ms.float32), t))
            ops.assign(p, theta - lr * m / (ops.sqrt(v) + self.eps))
        # your code: end
