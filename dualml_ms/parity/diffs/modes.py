"""Probes of modes and gradients in MindSpore."""

from __future__ import annotations

from typing import Any

import mindspore as ms
import numpy as np
from mindspore import nn, ops
from numpy.typing import NDArray

from dualml.parity.diffs.inputs import normal


def parameter(array: NDArray) -> ms.Parameter:
    """Make a trainable parameter named ``weight`` with these values."""
    return ms.Parameter(ms.Tensor(array), name="weight")


def train_mode_default() -> NDArray:
    """Run the probe "Training mode by default" in MindSpore and return the output (8, 4) of a new
    layer. A cell is in evaluation mode until `set_train()`: BatchNorm uses its moving statistics
    and does not update them; `TrainOneStepCell` does not change that, `Model.train` does."""
    layer = nn.BatchNorm1d(4)
    return layer(ms.Tensor(normal(8, 4) + 1)).asnumpy()


def train_mode_default_equal() -> NDArray:
    """Run the probe "Training mode by default" in MindSpore, written to agree with PyTorch, and
    return the output (8, 4) of a new layer. MindSpore: `net.set_train()` before training,
    `net.set_train(False)` before evaluation."""
    layer = nn.BatchNorm1d(4)
    layer.set_train()
    return layer(ms.Tensor(normal(8, 4) + 1)).asnumpy()


def dropout_eval() -> float:
    """Run the probe "Dropout that drops nothing" in MindSpore and return the share of dropped
    elements. `nn.Dropout` drops after `set_train()` only; `ops.dropout`, however, drops by
    default."""
    layer = nn.Dropout(p=0.5)
    return float((layer(ops.ones(100_000)) == 0).float().mean())


def dropout_eval_equal() -> float:
    """Run the probe "Dropout that drops nothing" in MindSpore, written to agree with PyTorch, and
    return the share of dropped elements. MindSpore: `net.set_train()`."""
    layer = nn.Dropout(p=0.5)
    layer.set_train()
    return float((layer(ops.ones(100_000)) == 0).float().mean())


def training_flag_nested() -> bool:
    """Run the probe "A layer exchanged after `set_train()`" in MindSpore and return whether the new
    layer is in training mode. `set_train()` reaches the cells that are there; one that is put in
    later (a new head) stays in evaluation mode."""
    net = nn.SequentialCell(nn.Dense(4, 4), nn.Dense(4, 4))
    net.set_train()
    net[1] = nn.Dropout(p=0.5)
    return net[1].training


def training_flag_nested_equal() -> bool:
    """Run the probe "A layer exchanged after `set_train()`" in MindSpore, written to agree with
    PyTorch, and return whether the new layer is in training mode. MindSpore: call `net.set_train()`
    last."""
    net = nn.SequentialCell(nn.Dense(4, 4), nn.Dense(4, 4))
    net[1] = nn.Dropout(p=0.5)
    net.set_train()
    return net[1].training


def graph_float_constants() -> NDArray:
    """Run the probe "Python floats in float64 arithmetic" in MindSpore and return the product (8,).
    The constant becomes float32 first, in PyNative mode and under `jit`: the result is a float64
    tensor with float32's error."""
    x = ms.Tensor(normal(8), ms.float64)
    return (x * 0.1).asnumpy()


def graph_float_constants_equal() -> NDArray:
    """Run the probe "Python floats in float64 arithmetic" in MindSpore, written to agree with
    PyTorch, and return the product (8,). MindSpore: `ms.Tensor(0.1, ms.float64)`."""
    x = ms.Tensor(normal(8), ms.float64)
    return (x * ms.Tensor(0.1, ms.float64)).asnumpy()


def jit_side_effects() -> int:
    """Run the probe "Python side effects under `jit`" in MindSpore and return the length of the
    list after three calls. Under `ms.jit` the appending happens to the graph's own copy: the list
    outside stays empty."""
    seen = []

    @ms.jit
    def double(x: ms.Tensor) -> ms.Tensor:
        seen.append(1)
        return 2 * x

    for _ in range(3):
        double(ops.ones(2))
    return len(seen)


def jit_side_effects_equal() -> int:
    """Run the probe "Python side effects under `jit`" in MindSpore, written to agree with PyTorch,
    and return the length of the list after three calls. MindSpore: return what is to be recorded,
    and record it outside."""
    seen = []

    @ms.jit
    def double(x: ms.Tensor) -> ms.Tensor:
        return 2 * x

    for _ in range(3):
        double(ops.ones(2))
        seen.append(1)
    return len(seen)


def jit_constants() -> NDArray:
    """Run the probe "Settings changed after compilation" in MindSpore and return the output after
    the change. `ms.jit` builds dictionaries, attributes and globals into the graph; a later change
    is ignored."""
    settings = {"scale": 1.0}

    @ms.jit
    def scaled(x: ms.Tensor) -> ms.Tensor:
        return x * settings["scale"]

    scaled(ops.ones(2))
    settings["scale"] = 5.0
    return scaled(ops.ones(2)).asnumpy()


def jit_constants_equal() -> NDArray:
    """Run the probe "Settings changed after compilation" in MindSpore, written to agree with
    PyTorch, and return the output after the change. MindSpore: pass what changes as an argument."""
    settings = {"scale": 1.0}

    @ms.jit
    def scaled(x: ms.Tensor, scale: float) -> ms.Tensor:
        return x * scale

    scaled(ops.ones(2), settings["scale"])
    settings["scale"] = 5.0
    return scaled(ops.ones(2), settings["scale"]).asnumpy()


def jit_numpy_random() -> list[float]:
    """Run the probe "NumPy's random numbers under `jit`" in MindSpore and return three calls'
    outputs for the input 1. `ms.jit` draws once, while it compiles; each call then uses the same
    number."""
    random = np.random.default_rng(0)

    @ms.jit
    def noisy(x: ms.Tensor) -> ms.Tensor:
        return x * random.random()

    return [float(noisy(ms.Tensor(1.0))) for _ in range(3)]


def jit_numpy_random_equal() -> list[float]:
    """Run the probe "NumPy's random numbers under `jit`" in MindSpore, written to agree with
    PyTorch, and return three calls' outputs for the input 1. MindSpore: draw outside and pass the
    number as a tensor."""
    random = np.random.default_rng(0)

    @ms.jit
    def noisy(x: ms.Tensor, factor: ms.Tensor) -> ms.Tensor:
        return x * factor

    return [float(noisy(ms.Tensor(1.0), ms.Tensor(random.random()))) for _ in range(3)]


def no_grad() -> NDArray:
    """Run the probe "Targets computed without a gradient" in MindSpore and return the gradient
    (3,). There is no public `no_grad`; `grad` differentiates all that its function computes. Left
    out, the gradient flows through the target as well."""
    weight = parameter(normal(3))
    return ms.grad(lambda: (weight * weight.square()).sum(), None, weight)().asnumpy()


def no_grad_equal() -> NDArray:
    """Run the probe "Targets computed without a gradient" in MindSpore, written to agree with
    PyTorch, and return the gradient (3,). MindSpore: `ops.stop_gradient(target)`."""
    weight = parameter(normal(3))

    def loss() -> ms.Tensor:
        target = ops.stop_gradient(weight.square())
        return (weight * target).sum()

    return ms.grad(loss, None, weight)().asnumpy()


def detach() -> NDArray:
    """Run the probe "`Tensor.detach`" in MindSpore, where it raises AttributeError; else return the
    values (3,). Tensors have no `detach`: an AttributeError."""
    x = ms.Tensor(normal(3))
    return x.detach().asnumpy()


def detach_equal() -> NDArray:
    """Run the probe "`Tensor.detach`" in MindSpore, written to agree with PyTorch, and return the
    values (3,). MindSpore: `ops.stop_gradient(x)`."""
    x = ms.Tensor(normal(3))
    return ops.stop_gradient(x).asnumpy()


def gradient_accumulation() -> NDArray:
    """Run the probe "Gradients that add up" in MindSpore and return the weight (4,) after one
    update. `grad` and `value_and_grad` return fresh gradients: of several micro-batches only the
    last one counts."""
    weight = parameter(np.ones(4, np.float32))
    optimizer = nn.SGD([weight], learning_rate=0.1)
    gradient = ms.grad(lambda batch: (weight * batch).sum(), None, optimizer.parameters)
    for batch in ms.Tensor(normal(2, 4)):
        gradients = gradient(batch)
    optimizer(gradients)
    return weight.asnumpy()


def gradient_accumulation_equal() -> NDArray:
    """Run the probe "Gradients that add up" in MindSpore, written to agree with PyTorch, and return
    the weight (4,) after one update. MindSpore: sum the gradients yourself before the optimizer is
    called."""
    weight = parameter(np.ones(4, np.float32))
    optimizer = nn.SGD([weight], learning_rate=0.1)
    gradient = ms.grad(lambda batch: (weight * batch).sum(), None, optimizer.parameters)
    total = [ops.zeros_like(weight) for weight in optimizer.parameters]
    for batch in ms.Tensor(normal(2, 4)):
        total = [old + new for old, new in zip(total, gradient(batch), strict=True)]
    optimizer(tuple(total))
    return weight.asnumpy()


def value_and_grad_position() -> tuple[Any, ...]:
    """Run the probe "`value_and_grad(…, weights=…)`" in MindSpore and return a tuple of the
    gradients. `grad_position` is 0 unless it is given: with `weights` alone come two things, the
    gradient of the first input and those of the weights."""
    weight, x = parameter(np.ones(3, np.float32)), ms.Tensor(normal(3))
    _, gradients = ms.value_and_grad(lambda x: (weight * x).sum(), weights=[weight])(x)
    return tuple(np.asarray(gradient) for gradient in gradients)


def value_and_grad_position_equal() -> tuple[Any, ...]:
    """Run the probe "`value_and_grad(…, weights=…)`" in MindSpore, written to agree with PyTorch,
    and return a tuple of the gradients. MindSpore: `ms.value_and_grad(fn, None, weights)`."""
    weight, x = parameter(np.ones(3, np.float32)), ms.Tensor(normal(3))
    _, gradients = ms.value_and_grad(lambda x: (weight * x).sum(), None, weights=[weight])(x)
    return tuple(np.asarray(gradient) for gradient in gradients)


def value_and_grad_order() -> tuple[float, float]:
    """Run the probe "Value first or gradient first" in MindSpore and return both results for x³ at
    2 as a pair. `ms.value_and_grad` returns the value first."""
    first, second = ms.value_and_grad(lambda x: x**3)(ms.Tensor(2.0))
    return float(first), float(second)


def grad_position_tuple() -> NDArray:
    """Run the probe "A tuple of one position" in MindSpore and return an array of the items that
    the gradient has. `ms.grad(fn, (0,))` returns the gradient itself; indexing it takes a row."""
    gradients = ms.grad(lambda x: x.square().sum(), grad_position=(0,))(ops.ones(3))
    return np.asarray([gradient.asnumpy() for gradient in gradients])


def grad_position_tuple_equal() -> NDArray:
    """Run the probe "A tuple of one position" in MindSpore, written to agree with PyTorch, and
    return an array of the items that the gradient has. MindSpore: don't index the gradient of a
    single position."""
    gradients = (ms.grad(lambda x: x.square().sum(), grad_position=0)(ops.ones(3)),)
    return np.asarray([gradient.asnumpy() for gradient in gradients])


def has_aux() -> NDArray:
    """Run the probe "A step that returns loss and logits" in MindSpore and return the gradient
    (4,). `value_and_grad` differentiates the sum of all outputs unless `has_aux=True`: the logits
    get into the gradient."""

    def step() -> tuple[ms.Tensor, ms.Tensor]:
        logits = 3 * weight
        return logits.square().mean(), logits

    weight = parameter(normal(4))
    _, gradient = ms.value_and_grad(step, None, weight)()
    return gradient.asnumpy()


def has_aux_equal() -> NDArray:
    """Run the probe "A step that returns loss and logits" in MindSpore, written to agree with
    PyTorch, and return the gradient (4,). MindSpore: `ms.value_and_grad(step, None, weights,
    has_aux=True)`."""

    def step() -> tuple[ms.Tensor, ms.Tensor]:
        logits = 3 * weight
        return logits.square().mean(), logits

    weight = parameter(normal(4))
    _, gradient = ms.value_and_grad(step, None, weight, has_aux=True)()
    return gradient.asnumpy()


def non_scalar_loss() -> NDArray:
    """Run the probe "The gradient of a loss that is not a scalar" in MindSpore and return the
    gradient (4,). `grad` takes the gradient of the sum, so a forgotten mean multiplies the rate by
    the size of the batch."""
    weight = parameter(normal(4))
    return ms.grad(lambda: weight.square(), None, weight)().asnumpy()


def non_scalar_loss_equal() -> NDArray:
    """Run the probe "The gradient of a loss that is not a scalar" in MindSpore, written to agree
    with PyTorch, and return the gradient (4,). Reduce the loss explicitly, on both sides."""
    weight = parameter(normal(4))
    return ms.grad(lambda: weight.square().mean(), None, weight)().asnumpy()


def unused_input_gradient() -> tuple[Any, ...]:
    """Run the probe "The gradient of what was not used" in MindSpore and return a tuple of both
    gradients. `grad` returns zeros, so a branch that was forgotten goes unnoticed."""
    gradients = ms.grad(lambda used, unused: used.square().sum(), (0, 1))(ops.ones(3), ops.ones(3))
    return tuple(gradient.asnumpy() for gradient in gradients)


def integer_gradient() -> NDArray:
    """Run the probe "The gradient with respect to integers" in MindSpore and return the gradient
    (2,). `grad` returns integers, truncated: of Σx²/2 at (1, 2) it gives (0, 0)."""
    return ms.grad(lambda x: x.square().sum() / 2)(ms.Tensor([1, 2])).asnumpy()


def integer_gradient_equal() -> NDArray:
    """Run the probe "The gradient with respect to integers" in MindSpore, written to agree with
    PyTorch, and return the gradient (2,). Make the tensor floating-point first."""
    return ms.grad(lambda x: x.square().sum() / 2)(ms.Tensor([1.0, 2.0])).asnumpy()


def squared(x: ms.Tensor) -> ms.Tensor:
    """Return the sum of squares of the softmax of ``x`` along its last axis, a scalar."""
    return ops.softmax(x, -1).square().sum()


@ms.jit
def compiled(x: ms.Tensor) -> ms.Tensor:
    """Return the gradient of `squared` at ``x``, computed in a compiled graph."""
    return ms.grad(squared)(x)


def softmax_gradient() -> NDArray:
    """Run the probe "The gradient of softmax after an axis of length one" in MindSpore and return
    the gradient. In PyNative mode on a CPU, where the first softmax of a rank that is
    differentiated in a process has an axis of length one (attention over one token), the gradients
    of all later ones of that rank are wrong: each element is differentiated as if it were alone in
    its row."""
    ms.grad(squared)(ops.ones((2, 1, 1, 1, 3, 1)))  # of a rank that occurs nowhere else here
    return ms.grad(squared)(ms.Tensor(normal(2, 1, 1, 1, 3, 4))).asnumpy()


def softmax_gradient_equal() -> NDArray:
    """Run the probe "The gradient of softmax after an axis of length one" in MindSpore, written to
    agree with PyTorch, and return the gradient. MindSpore: compile the step (`ms.jit` or graph
    mode), or differentiate a softmax of that rank over a longer axis first."""
    return compiled(ms.Tensor(normal(2, 1, 1, 1, 3, 4))).asnumpy()
