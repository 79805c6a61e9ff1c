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
        # your code: begin
        lr = self.get_lr()
        for p, g in zip(self.parameters, gradients):
            ops.assign_sub(p, lr * g)
        ops.assign_add(self.global_step, self.global_step_increase_tensor)
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
        self.velocity = self.parameters.clone(prefix="velocity", init="zeros")
        # your code: end

    def construct(self, gradients):
        """One update of every parameter; ``gradients`` are in the parameters' order."""
        # your code: begin
        eta = self.get_lr()
        ops.assign_add(self.global_step, self.global_step_increase_tensor)
        for i in range(len(self.parameters)):
            p = self.parameters[i]
            g = gradients[i]
            if self.decay != 0:
                g = g + self.decay * p
            if self.momentum == 0:
                d = g
            else:
                v = self.velocity[i]
                ops.assign(v, self.momentum * v + g)
                # v already holds the new value here
                d = g + self.momentum * v if self.nesterov else v
            ops.assign(p, p - eta * d)
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
        self.zeros = [ops.zeros_like(p) for p in self.parameters]
        # your code: end

    def construct(self, gradients):
        """One update of every parameter; ``gradients`` are in the parameters' order."""
        # your code: begin
        lr = self.get_lr()
        ops.assign_add(self.global_step, self.global_step_increase_tensor)
        t = self.global_step.reshape(())
        m = [z for z in self.zeros]
        v = [z for z in self.zeros]
        for i in range(len(self.parameters)):
            p = self.parameters[i]
            g = gradients[i]
            if self.decoupled:
                ops.assign(p, p - lr * self.decay * p)
            else:
                g = g + self.decay * p
            m[i] = self.beta1 * m[i] + (1 - self.beta1) * g
            v[i] = self.beta2 * v[i] + (1 - self.beta2) * g * g
            m_hat = m[i]
            v_hat = v[i]
            if self.bias_correction:
                m_hat = m_hat / (1 - self.beta1**t)
                v_hat = v_hat / (1 - self.beta2**t)
            ops.assign_sub(p, lr * m_hat / (ops.sqrt(v_hat) + self.eps))
        # your code: end
