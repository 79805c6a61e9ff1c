"""Mistakes that no cause of the finder lists, in MindSpore.

Whatever is compiled has to stand in a file, so every wrong update is written out here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mindspore as ms
from mindspore import nn, ops

from dualml_ms.algorithms import training
from dualml_ms.algorithms.optim import OPTIMIZERS
from dualml_ms.algorithms.optim.adam import Adam
from dualml_ms.parallel.split import MindSporeStage
from planted.unlisted_neutral import RANKS, double_last_micro_batch

# --- SGD with momentum ----------------------------------------------------------------------------


def rate_and_step(self, lr, t):
    return lr, t


def dampened_first(self, i, g, decay, numbers):
    lr, _ = numbers
    p = self.parameters[i]
    g = g + decay * p
    b = self.mu * self.momentum_buffer[i] + (1 - self.dampening) * g
    ops.assign(self.momentum_buffer[i], b)
    ops.assign_sub(p, lr * b)


def old_buffer(self, i, g, decay, numbers):
    lr, _ = numbers
    old = self.mu * self.momentum_buffer[i]
    ops.assign_sub(self.parameters[i], lr * (g + old))
    ops.assign(self.momentum_buffer[i], old + g)


def reset_at_two(self, i, g, decay, numbers):
    lr, t = numbers
    p = self.parameters[i]
    g = g + decay * p
    b = self.mu * (t != 2).astype(ms.float32) * self.momentum_buffer[i] + g
    ops.assign(self.momentum_buffer[i], b)
    ops.assign_sub(p, lr * b)


def times_sum(self, i, g, decay, numbers):
    lr, _ = numbers
    p = self.parameters[i]
    g = g + decay * p
    b = self.mu * (self.momentum_buffer[i] + g)
    ops.assign(self.momentum_buffer[i], b)
    ops.assign_sub(p, lr * b)


def slow_last(self, i, g, decay, numbers):
    lr, share = numbers
    if i >= len(self.parameters) - 2:
        self.kept_update(i, g, decay, (lr / 10, share))
    else:
        self.kept_update(i, g, decay, numbers)


# --- Adam -----------------------------------------------------------------------------------------


def corrections(self, lr, t):
    c1 = (1 - ops.pow(self.wide1, t)).astype(ms.float32)
    c2 = (1 - ops.pow(self.wide2, t)).astype(ms.float32)
    return lr, c1, c2, t


def assign_averages(self, i, m, v):
    ops.assign(self.exp_avg[i], m)
    ops.assign(self.exp_avg_sq[i], v)


def with_beta2(self, i, g, decay, numbers):
    lr, c1, c2, _ = numbers
    m = self.b2 * self.exp_avg[i] + self.share2 * g
    v = self.b2 * self.exp_avg_sq[i] + self.share2 * (g * g)
    assign_averages(self, i, m, v)
    ops.assign_sub(self.parameters[i], lr * (m / c1) / (ops.sqrt(v / c2) + self.outer))


def squared_average(self, i, g, decay, numbers):
    lr, c1, c2, _ = numbers
    m = self.b1 * self.exp_avg[i] + self.share1 * g
    v = self.b2 * self.exp_avg_sq[i] + self.share2 * (m * m)
    assign_averages(self, i, m, v)
    ops.assign_sub(self.parameters[i], lr * (m / c1) / (ops.sqrt(v / c2) + self.outer))


def first_corrected(self, i, g, decay, numbers):
    lr, c1, _, _ = numbers
    m = self.b1 * self.exp_avg[i] + self.share1 * g
    v = self.b2 * self.exp_avg_sq[i] + self.share2 * (g * g)
    assign_averages(self, i, m, v)
    ops.assign_sub(self.parameters[i], lr * (m / c1) / (ops.sqrt(v) + self.outer))


def corrected_twice(self, i, g, decay, numbers):
    lr, c1, c2, _ = numbers
    m = self.b1 * self.exp_avg[i] + self.share1 * g
    v = self.b2 * self.exp_avg_sq[i] + self.share2 * (g * g)
    assign_averages(self, i, m, v)
    ops.assign_sub(self.parameters[i], lr * (m / c1) / (ops.sqrt(v / c2 / c2) + self.outer))


def decayed_average(self, i, g, decay, numbers):
    lr, c1, c2, _ = numbers
    p = self.parameters[i]
    m = self.b1 * self.exp_avg[i] + self.share1 * (g + decay * p)
    v = self.b2 * self.exp_avg_sq[i] + self.share2 * (g * g)
    assign_averages(self, i, m, v)
    ops.assign_sub(p, lr * (m / c1) / (ops.sqrt(v / c2) + self.outer))


def decayed_after(self, i, g, decay, numbers):
    lr, c1, c2, _ = numbers
    p = self.parameters[i]
    m = self.b1 * self.exp_avg[i] + self.share1 * g
    v = self.b2 * self.exp_avg_sq[i] + self.share2 * (g * g)
    assign_averages(self, i, m, v)
    new = p - lr * (m / c1) / (ops.sqrt(v / c2) + self.outer)
    ops.assign(p, new * (1 - lr * decay))


def every_second(self, i, g, decay, numbers):
    lr, c1, c2, t = numbers
    if i >= len(self.parameters) - 2:
        lr = lr * (t % 2).astype(ms.float32)
    m = self.b1 * self.exp_avg[i] + self.share1 * g
    v = self.b2 * self.exp_avg_sq[i] + self.share2 * (g * g)
    assign_averages(self, i, m, v)
    ops.assign_sub(self.parameters[i], lr * (m / c1) / (ops.sqrt(v / c2) + self.outer))


# --- RMSprop and Adagrad --------------------------------------------------------------------------


def correction_of_squares(self, lr, t):
    return lr, (1 - ops.pow(self.wide, t)).astype(ms.float32)


def corrected_squares(self, i, g, decay, numbers):
    lr, c = numbers
    v = self.alpha * self.square_avg[i] + self.share * (g * g)
    ops.assign(self.square_avg[i], v)
    b = self.mu * self.momentum_buffer[i] + g / (ops.sqrt(v / c) + self.eps)
    ops.assign(self.momentum_buffer[i], b)
    ops.assign_sub(self.parameters[i], lr * b)


def around_epsilon(self, i, g, decay, numbers):
    lr, _ = numbers
    total = self.sum[i] + g * g
    ops.assign(self.sum[i], total)
    ops.assign_sub(self.parameters[i], lr * g / ops.sqrt(total + self.outer))


# --- planting them --------------------------------------------------------------------------------


def replace_rule(rule: str, update: Any, coefficients: Any) -> Callable[[str], None]:
    """Return what replaces both functions of a rule."""

    def change(name: str) -> None:
        kind = OPTIMIZERS[rule]
        right = kind.__init__

        def init(self: Any, *args: Any, **more: Any) -> None:
            right(self, *args, **more)
            self.outer = getattr(self.rule, "eps", 0.0)
            self.wide = ms.Tensor(getattr(self.rule, "alpha", 0.0), ms.float64)

        # Averages in the rule's own units, as the assignments above keep them.
        Adam._uses_fused_kernel = lambda self: False
        kind.__init__, kind.update, kind.coefficients = init, update, coefficients

    return change


def slow_last_layer(name: str) -> None:
    """Give the last layer a tenth of the rate."""
    kind = OPTIMIZERS["sgd"]
    kind.kept_update, kind.update = kind.update, slow_last


class Doubled(nn.Cell):
    """Loss and gradients, one of them doubled."""

    def __init__(self, inner: Any, position: int) -> None:
        super().__init__(auto_prefix=False)
        self.inner, self.position = inner, position

    def construct(self, x, y, *masks):
        loss, gradients = self.inner(x, y, *masks)
        found = ()
        for i in range(len(gradients)):
            found += (gradients[i] * 2 if i == self.position else gradients[i],)
        return loss, found


def double_gradient(name: str) -> None:
    """Double the gradient of the second layer's weight, tensor 2 of the network."""
    right = ops.value_and_grad

    def value_and_grad(fn: Any, position: Any, weights: Any, **more: Any) -> Any:
        return Doubled(right(fn, position, weights, **more), 2)

    training.ops.value_and_grad = value_and_grad


UNLISTED: dict[str, Callable[[str], None]] = {
    "first-gradient-dampened": replace_rule("sgd", dampened_first, rate_and_step),
    "nesterov-with-old-buffer": replace_rule("sgd", old_buffer, rate_and_step),
    "buffer-reset-at-two": replace_rule("sgd", reset_at_two, rate_and_step),
    "momentum-times-sum": replace_rule("sgd", times_sum, rate_and_step),
    "average-with-beta2": replace_rule("adam", with_beta2, corrections),
    "square-of-average": replace_rule("adam", squared_average, corrections),
    "only-first-corrected": replace_rule("adam", first_corrected, corrections),
    "second-corrected-twice": replace_rule("adam", corrected_twice, corrections),
    "decay-only-in-average": replace_rule("adam", decayed_average, corrections),
    "decay-after-step": replace_rule("adamw", decayed_after, corrections),
    "last-layer-every-second": replace_rule("adam", every_second, corrections),
    "corrected-squares": replace_rule("rmsprop", corrected_squares, correction_of_squares),
    "root-around-epsilon": replace_rule("adagrad", around_epsilon, rate_and_step),
    "last-micro-batch-twice": double_last_micro_batch(MindSporeStage),
    "last-layer-slower": slow_last_layer,
    "one-tensor-twice": double_gradient,
    **RANKS,
}
