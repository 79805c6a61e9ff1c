"""Lab 1: gradient descent, SGD and Adam as optimizers of MindSpore."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from mindspore import Parameter, ParameterTuple, nn, ops


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
        new = [p - lr * g for p, g in zip(self.parameters, gradients)]
        for p, n in zip(self.parameters, new):
            ops.assign(p, n)
        self.global_step += self.global_step_increase_tensor
        return tuple(new)
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
        self.buffers = ParameterTuple(
            [Parameter(ops.zeros_like(p), name="buffer_" + p.name) for p in self.parameters]
        )
        # your code: end

    def construct(self, gradients):
        """One update of every parameter; ``gradients`` are in the parameters' order."""
        # your code: begin
        lr = self.get_lr()
        for p, grad, buf in zip(self.parameters, gradients, self.buffers):
            grad = ops.add(grad, ops.mul(p, self.decay))
            new = ops.add(ops.mul(buf, self.momentum), grad)
            direction = new
            if self.nesterov:
                direction = ops.add(grad, ops.mul(new, self.momentum))
            ops.assign_sub(p, ops.mul(direction, lr))
            ops.assign(buf, new)
        self.global_step += 1
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
        self.m = self.parameters.clone(prefix="moment", init="zeros")
        self.v = self.m
        # your code: end

    def construct(self, gradients):
        """One update of every parameter; ``gradients`` are in the parameters' order."""
        # your code: begin
        lr = self.get_lr()
        ops.assign_add(self.global_step, self.global_step_increase_tensor)
        t = self.global_step[0]
        correct1 = 1.0
        correct2 = 1.0
        if self.bias_correction:
            correct1 = 1 - ops.pow(self.beta1, t)
            correct2 = 1 - ops.pow(self.beta2, t)
        for i in range(len(self.parameters)):
            p = self.parameters[i]
            g = gradients[i]
            if self.decay != 0 and not self.decoupled:
                g = g + self.decay * p
            if self.decay != 0 and self.decoupled:
                ops.assign(p, p * (1 - lr * self.decay))
            ops.assign(self.m[i], self.beta1 * self.m[i] + (1 - self.beta1) * g)
            ops.assign(self.v[i], self.beta2 * self.v[i] + (1 - self.beta2) * ops.square(g))
            m_hat = self.m[i] / correct1
            v_hat = self.v[i] / correct2
            ops.assign_sub(p, lr * m_hat / (v_hat.sqrt() + self.eps))
        # your code: end
