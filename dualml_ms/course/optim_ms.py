"""Lab 1: gradient descent, SGD and Adam as optimizers of MindSpore."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from mindspore import nn, ops


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
        # solution: begin
        lr = self.get_lr()
        ops.assign_add(self.global_step, self.global_step_increase_tensor)
        for i in range(len(self.parameters)):
            ops.assign_sub(self.parameters[i], lr * gradients[i])
        return True
        # solution: end


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
        # solution: begin pass
        self.b = self.parameters.clone(prefix="b", init="zeros")
        # solution: end

    def construct(self, gradients):
        """One update of every parameter; ``gradients`` are in the parameters' order."""
        # solution: begin
        lr = self.get_lr()
        ops.assign_add(self.global_step, self.global_step_increase_tensor)
        for i in range(len(self.parameters)):
            p, b = self.parameters[i], self.b[i]
            g = gradients[i] + self.decay * p
            if self.momentum > 0:
                new = self.momentum * b + g
                ops.assign(b, new)
                g = g + self.momentum * new if self.nesterov else new
            ops.assign_sub(p, lr * g)
        return True
        # solution: end


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
        # solution: begin pass
        self.m = self.parameters.clone(prefix="m", init="zeros")
        self.v = self.parameters.clone(prefix="v", init="zeros")
        # solution: end

    def construct(self, gradients):
        """One update of every parameter; ``gradients`` are in the parameters' order."""
        # solution: begin
        lr = self.get_lr()
        ops.assign_add(self.global_step, self.global_step_increase_tensor)
        t = self.global_step.reshape(()).astype("float32")
        c1, c2 = 1.0, 1.0
        if self.bias_correction:
            c1, c2 = 1 - ops.pow(self.beta1, t), 1 - ops.pow(self.beta2, t)
        for i in range(len(self.parameters)):
            p, m, v, g = self.parameters[i], self.m[i], self.v[i], gradients[i]
            old = p
            if self.decoupled:
                old = p * (1 - lr * self.decay)
            else:
                g = g + self.decay * p
            new_m = self.beta1 * m + (1 - self.beta1) * g
            new_v = self.beta2 * v + (1 - self.beta2) * g * g
            ops.assign(m, new_m)
            ops.assign(v, new_v)
            ops.assign(p, old - lr * (new_m / c1) / (ops.sqrt(new_v / c2) + self.eps))
        return True
        # solution: end
