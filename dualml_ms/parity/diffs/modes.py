"""Probes of modes and gradients in MindSpore."""

from __future__ import annotations

from typing import Any

import mindspore as ms
import numpy as np
from mindspore import nn, ops
from numpy.typing import NDArray

from dualml.parity.diffs.inputs import normal


def parameter(array: NDArray) -> ms.Parameter:
    return ms.Parameter(ms.Tensor(array), name="weight")


def train_mode_default() -> NDArray:
    layer = nn.BatchNorm1d(4)
    return layer(ms.Tensor(normal(8, 4) + 1)).asnumpy()


def train_mode_default_equal() -> NDArray:
    layer = nn.BatchNorm1d(4)
    layer.set_train()
    return layer(ms.Tensor(normal(8, 4) + 1)).asnumpy()


def dropout_eval() -> float:
    layer = nn.Dropout(p=0.5)
    return float((layer(ops.ones(100_000)) == 0).float().mean())


def dropout_eval_equal() -> float:
    layer = nn.Dropout(p=0.5)
    layer.set_train()
    return float((layer(ops.ones(100_000)) == 0).float().mean())


def training_flag_nested() -> bool:
    net = nn.SequentialCell(nn.Dense(4, 4), nn.Dense(4, 4))
    net.set_train()
    net[1] = nn.Dropout(p=0.5)
    return net[1].training


def training_flag_nested_equal() -> bool:
    net = nn.SequentialCell(nn.Dense(4, 4), nn.Dense(4, 4))
    net[1] = nn.Dropout(p=0.5)
    net.set_train()
    return net[1].training


def graph_float_constants() -> NDArray:
    x = ms.Tensor(normal(8), ms.float64)
    return (x * 0.1).asnumpy()


def graph_float_constants_equal() -> NDArray:
    x = ms.Tensor(normal(8), ms.float64)
    return (x * ms.Tensor(0.1, ms.float64)).asnumpy()


def jit_side_effects() -> int:
    seen = []

    @ms.jit
    def double(x: ms.Tensor) -> ms.Tensor:
        seen.append(1)
        return 2 * x

    for _ in range(3):
        double(ops.ones(2))
    return len(seen)


def jit_side_effects_equal() -> int:
    seen = []

    @ms.jit
    def double(x: ms.Tensor) -> ms.Tensor:
        return 2 * x

    for _ in range(3):
        double(ops.ones(2))
        seen.append(1)
    return len(seen)


def jit_constants() -> NDArray:
    settings = {"scale": 1.0}

    @ms.jit
    def scaled(x: ms.Tensor) -> ms.Tensor:
        return x * settings["scale"]

    scaled(ops.ones(2))
    settings["scale"] = 5.0
    return scaled(ops.ones(2)).asnumpy()


def jit_constants_equal() -> NDArray:
    settings = {"scale": 1.0}

    @ms.jit
    def scaled(x: ms.Tensor, scale: float) -> ms.Tensor:
        return x * scale

    scaled(ops.ones(2), settings["scale"])
    settings["scale"] = 5.0
    return scaled(ops.ones(2), settings["scale"]).asnumpy()


def jit_numpy_random() -> list[float]:
    random = np.random.default_rng(0)

    @ms.jit
    def noisy(x: ms.Tensor) -> ms.Tensor:
        return x * random.random()

    return [float(noisy(ms.Tensor(1.0))) for _ in range(3)]


def jit_numpy_random_equal() -> list[float]:
    random = np.random.default_rng(0)

    @ms.jit
    def noisy(x: ms.Tensor, factor: ms.Tensor) -> ms.Tensor:
        return x * factor

    return [float(noisy(ms.Tensor(1.0), ms.Tensor(random.random()))) for _ in range(3)]


def no_grad() -> NDArray:
    weight = parameter(normal(3))
    return ms.grad(lambda: (weight * weight.square()).sum(), None, weight)().asnumpy()


def no_grad_equal() -> NDArray:
    weight = parameter(normal(3))

    def loss() -> ms.Tensor:
        target = ops.stop_gradient(weight.square())
        return (weight * target).sum()

    return ms.grad(loss, None, weight)().asnumpy()


def detach() -> NDArray:
    x = ms.Tensor(normal(3))
    return x.detach().asnumpy()


def detach_equal() -> NDArray:
    x = ms.Tensor(normal(3))
    return ops.stop_gradient(x).asnumpy()


def gradient_accumulation() -> NDArray:
    weight = parameter(np.ones(4, np.float32))
    optimizer = nn.SGD([weight], learning_rate=0.1)
    gradient = ms.grad(lambda batch: (weight * batch).sum(), None, optimizer.parameters)
    for batch in ms.Tensor(normal(2, 4)):
        gradients = gradient(batch)
    optimizer(gradients)
    return weight.asnumpy()


def gradient_accumulation_equal() -> NDArray:
    weight = parameter(np.ones(4, np.float32))
    optimizer = nn.SGD([weight], learning_rate=0.1)
    gradient = ms.grad(lambda batch: (weight * batch).sum(), None, optimizer.parameters)
    total = [ops.zeros_like(weight) for weight in optimizer.parameters]
    for batch in ms.Tensor(normal(2, 4)):
        total = [old + new for old, new in zip(total, gradient(batch), strict=True)]
    optimizer(tuple(total))
    return weight.asnumpy()


def value_and_grad_position() -> tuple[Any, ...]:
    weight, x = parameter(np.ones(3, np.float32)), ms.Tensor(normal(3))
    _, gradients = ms.value_and_grad(lambda x: (weight * x).sum(), weights=[weight])(x)
    return tuple(np.asarray(gradient) for gradient in gradients)


def value_and_grad_position_equal() -> tuple[Any, ...]:
    weight, x = parameter(np.ones(3, np.float32)), ms.Tensor(normal(3))
    _, gradients = ms.value_and_grad(lambda x: (weight * x).sum(), None, weights=[weight])(x)
    return tuple(np.asarray(gradient) for gradient in gradients)


def value_and_grad_order() -> tuple[float, float]:
    first, second = ms.value_and_grad(lambda x: x**3)(ms.Tensor(2.0))
    return float(first), float(second)


def grad_position_tuple() -> NDArray:
    gradients = ms.grad(lambda x: x.square().sum(), grad_position=(0,))(ops.ones(3))
    return np.asarray([gradient.asnumpy() for gradient in gradients])


def grad_position_tuple_equal() -> NDArray:
    gradients = (ms.grad(lambda x: x.square().sum(), grad_position=0)(ops.ones(3)),)
    return np.asarray([gradient.asnumpy() for gradient in gradients])


def has_aux() -> NDArray:
    def step() -> tuple[ms.Tensor, ms.Tensor]:
        logits = 3 * weight
        return logits.square().mean(), logits

    weight = parameter(normal(4))
    _, gradient = ms.value_and_grad(step, None, weight)()
    return gradient.asnumpy()


def has_aux_equal() -> NDArray:
    def step() -> tuple[ms.Tensor, ms.Tensor]:
        logits = 3 * weight
        return logits.square().mean(), logits

    weight = parameter(normal(4))
    _, gradient = ms.value_and_grad(step, None, weight, has_aux=True)()
    return gradient.asnumpy()


def non_scalar_loss() -> NDArray:
    weight = parameter(normal(4))
    return ms.grad(lambda: weight.square(), None, weight)().asnumpy()


def non_scalar_loss_equal() -> NDArray:
    weight = parameter(normal(4))
    return ms.grad(lambda: weight.square().mean(), None, weight)().asnumpy()


def unused_input_gradient() -> tuple[Any, ...]:
    gradients = ms.grad(lambda used, unused: used.square().sum(), (0, 1))(ops.ones(3), ops.ones(3))
    return tuple(gradient.asnumpy() for gradient in gradients)


def integer_gradient() -> NDArray:
    return ms.grad(lambda x: x.square().sum() / 2)(ms.Tensor([1, 2])).asnumpy()


def integer_gradient_equal() -> NDArray:
    return ms.grad(lambda x: x.square().sum() / 2)(ms.Tensor([1.0, 2.0])).asnumpy()


def squared(x: ms.Tensor) -> ms.Tensor:
    return ops.softmax(x, -1).square().sum()


@ms.jit
def compiled(x: ms.Tensor) -> ms.Tensor:
    return ms.grad(squared)(x)


def softmax_gradient() -> NDArray:
    ms.grad(squared)(ops.ones((2, 1, 1, 1, 3, 1)))  # of a rank that occurs nowhere else here
    return ms.grad(squared)(ms.Tensor(normal(2, 1, 1, 1, 3, 4))).asnumpy()


def softmax_gradient_equal() -> NDArray:
    return compiled(ms.Tensor(normal(2, 1, 1, 1, 3, 4))).asnumpy()
