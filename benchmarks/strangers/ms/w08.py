"""Lab 1: gradient descent, SGD and Adam as optimizers of MindSpore."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from mindspore import Parameter, ParameterTuple, Tensor, nn, ops
from mindspore import dtype as mstype


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
        self.buffers = ParameterTuple(
            [Parameter(ops.zeros_like(p), name="buffer_" + p.name) for p in self.parameters]
        )
        # your code: end

    def construct(self, gradients):
        """One update of every parameter; ``gradients`` are in the parameters' order."""
        # your code: begin
        lr = self.get_lr()
        for p, grad, buf in zip(self.parameters, gradients, self.buffers):
            grad = ops.sub(grad, ops.mul(p, self.decay))
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
        self.moments1 = self.parameters.clone(prefix="moment1", init="zeros")
        self.moments2 = self.parameters.clone(prefix="moment2", init="zeros")
        self.beta1_power = Parameter(Tensor(1.0, mstype.float32), name="beta1_power")
        self.beta2_power = Parameter(Tensor(1.0, mstype.float32), name="beta2_power")
        # your code: end

    def construct(self, gradients):
        """One update of every parameter; ``gradients`` are in the parameters' order."""
        # your code: begin
        lr = self.get_lr()
        power1 = self.beta1_power * self.beta1
        power2 = self.beta2_power * self.beta2
        ops.assign(self.beta1_power, power1)
        ops.assign(self.beta2_power, power2)
        alpha = lr
        eps = self.eps
        if self.bias_correction:
            root = ops.sqrt(1 - power2)
            alpha = lr * root / (1 - power1)
            eps = self.eps * root
        for p, g, m, v in zip(self.parameters, gradients, self.moments1, self.moments2):
            shrink = 0.0
            if self.decoupled:
                shrink = lr * self.decay * p
            else:
                g = g + self.decay * p
            m_new = m + (1 - self.beta1) * (g - m)
            v_new = v + (1 - self.beta2) * (g * g - v)
            ops.assign_sub(p, shrink + alpha * m_new / (ops.sqrt(v_new) + eps))
            ops.assign(m, m_new)
            ops.assign(v, v_new)
        self.global_step += 1
        # your code: end
