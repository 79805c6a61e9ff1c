"""Lab 1: gradient descent, SGD and Adam as optimizers of MindSpore."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from mindspore import Parameter, Tensor, nn, ops
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
        lr = self.get_lr()
        for p, g in zip(self.parameters, gradients):
            p -= lr * g
        ops.assign_add(self.global_step, self.global_step_increase_tensor)


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
        self.b = self.parameters.clone(prefix="b", init="zeros")

    def construct(self, gradients):
        """One update of every parameter; ``gradients`` are in the parameters' order."""
        lr = self.get_lr()
        for p, g, b in zip(self.parameters, gradients, self.b):
            g = g + self.decay * p
            b_new = self.momentum * b + g
            ops.assign(b, b_new)
            if self.nesterov:
                d = g + self.momentum * b_new
            else:
                d = b_new
            ops.assign_sub(p, lr * d)
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
        self.first = self.parameters.clone(prefix="first", init="zeros")
        self.second = self.parameters.clone(prefix="second", init="zeros")
        self.updates = Parameter(Tensor(0, mstype.int32), name="updates")

    def construct(self, gradients):
        """One update of every parameter; ``gradients`` are in the parameters' order."""
        lr = self.get_lr()
        t = ops.assign_add(self.updates, Tensor(1, mstype.int32))
        c1 = 1 - self.beta1**t if self.bias_correction else 1.0
        c2 = 1 - self.beta2**t if self.bias_correction else 1.0
        for i in range(len(gradients)):
            theta = self.parameters[i]
            g = gradients[i]
            if self.decoupled:
                ops.assign_sub(theta, lr * self.decay * theta)
            else:
                g = g + self.decay * theta
            first = self.beta1 * self.first[i] + (1 - self.beta1) * g
            second = self.beta2 * self.second[i] + (1 - self.beta2) * ops.pow(g, 2)
            ops.assign(self.first[i], first)
            ops.assign(self.second[i], second)
            ops.assign_sub(theta, lr * ops.div(first / c1, ops.sqrt(second / c2) + self.eps))
        ops.assign_add(self.global_step, self.global_step_increase_tensor)
