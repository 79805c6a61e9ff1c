"""Lab 1: gradient descent, SGD and Adam as optimizers of MindSpore."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from mindspore import Parameter, ParameterTuple, nn, ops
from mindspore import dtype as mstype
from mindspore.common.initializer import initializer

_momentum = ops.MultitypeFuncGraph("momentum")


@_momentum.register("Number", "Number", "Bool", "Tensor", "Tensor", "Tensor", "Tensor")
def _momentum_one(mu, decay, nesterov, lr, theta, buf, grad):
    """One parameter's update."""
    grad = grad + decay * theta
    new = mu * buf + grad
    ops.assign(buf, new)
    if nesterov:
        new = grad + mu * new
    return ops.assign_sub(theta, lr * new)


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
        ops.assign_add(self.global_step, self.global_step_increase_tensor)
        lr = self.get_lr()
        for p, g in zip(self.parameters, gradients):
            ops.assign_sub(p, lr * g)
        return self.global_step
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
        self.slots = self.parameters.clone(prefix="slot", init="zeros")
        # your code: end

    def construct(self, gradients):
        """One update of every parameter; ``gradients`` are in the parameters' order."""
        # your code: begin
        lr = self.get_lr()
        update = ops.partial(_momentum, self.momentum, self.decay, self.nesterov, lr)
        done = self.map_(update, self.parameters, self.slots, gradients)
        self.assignadd(self.global_step, self.global_step_increase_tensor)
        return done
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
        self.m = ParameterTuple(
            [
                Parameter(initializer("zeros", p.shape, mstype.float64), name=f"m.{k}")
                for k, p in enumerate(self.parameters)
            ]
        )
        self.v = ParameterTuple(
            [
                Parameter(initializer("zeros", p.shape, mstype.float64), name=f"v.{k}")
                for k, p in enumerate(self.parameters)
            ]
        )
        # your code: end

    def construct(self, gradients):
        """One update of every parameter; ``gradients`` are in the parameters' order."""
        # your code: begin
        lr = self.get_lr().astype(mstype.float64)
        t = self.global_step.astype(mstype.float64)[0] + 1
        for p, g, m, v in zip(self.parameters, gradients, self.m, self.v):
            theta = p.astype(mstype.float64)
            g = g.astype(mstype.float64)
            if self.decoupled:
                theta = (1 - lr * self.decay) * theta
            else:
                g = g + self.decay * theta
            m_hat = ops.assign(m, self.beta1 * m + (1 - self.beta1) * g)
            v_hat = ops.assign(v, self.beta2 * v + (1 - self.beta2) * g**2)
            if self.bias_correction:
                m_hat = m_hat / (1 - self.beta1**t)
                v_hat = v_hat / (1 - self.beta2**t)
            theta = theta - lr * m_hat / (v_hat**0.5 + self.eps)
            ops.assign(p, theta.astype(p.dtype))
        ops.assign(self.global_step, self.global_step + 1)
        # your code: end
