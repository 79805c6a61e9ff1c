"""Lab 1: gradient descent, SGD and Adam as optimizers of MindSpore."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from mindspore import Parameter, ParameterTuple, Tensor, nn, ops
from mindspore import dtype as mstype

_descend = ops.MultitypeFuncGraph("descend")


@_descend.register("Tensor", "Tensor", "Tensor")
def _descend_one(lr, theta, grad):
    """theta <- theta - lr * grad."""
    return ops.assign_sub(theta, lr * grad)


_adam = ops.MultitypeFuncGraph("adam")


@_adam.register(
    "Number", "Number", "Number", "Number", "Bool", "Bool",
    "Tensor", "Tensor", "Tensor", "Tensor", "Tensor", "Tensor",
)
def _adam_one(beta1, beta2, eps, decay, decoupled, correct, t, lr, theta, m, v, grad):
    """One parameter's update."""
    start = theta
    if decoupled:
        start = theta - lr * decay * theta
    else:
        grad = grad + decay * theta
    m_new = ops.lerp(grad, m, beta1)
    v_new = ops.lerp(grad * grad, v, beta2)
    ops.assign(m, m_new)
    ops.assign(v, v_new)
    if correct:
        m_new = m_new / (1.0 - beta1**t)
        v_new = v_new / (1.0 - beta2**t)
    return ops.assign(theta, start - lr * m_new / (ops.sqrt(v_new) + eps))


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
        done = self.map_(ops.partial(_descend, lr), self.parameters, gradients)
        self.assignadd(self.global_step, self.global_step_increase_tensor)
        return done


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
        self.m = self.parameters.clone(prefix="m", init="zeros")
        self.v = self.parameters.clone(prefix="v", init="zeros")

    def construct(self, gradients):
        """One update of every parameter; ``gradients`` are in the parameters' order."""
        lr = self.get_lr()
        t = ops.cast(self.global_step, mstype.float32).reshape(()) + 1.0
        update = ops.partial(
            _adam, self.beta1, self.beta2, self.eps, self.decay, self.decoupled,
            self.bias_correction, t, lr,
        )
        done = self.map_(update, self.parameters, self.m, self.v, gradients)
        self.assignadd(self.global_step, self.global_step_increase_tensor)
        return done
