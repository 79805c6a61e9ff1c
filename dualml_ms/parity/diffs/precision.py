"""Probes of mixed precision and loss scaling in MindSpore."""

from __future__ import annotations

import contextlib
import tempfile
from typing import Any

import mindspore as ms
import mindspore.dataset as ds
import numpy as np
from mindspore import amp, nn, ops
from numpy.typing import NDArray

from dualml.parity.diffs.inputs import class_indices, normal


def integer_linear() -> nn.Dense:
    """Make a layer of 8 inputs and 4 outputs, without bias, whose weights are integers from 0 to 4,
    so that no type has to round the products."""
    weight = ms.Tensor(class_indices(5, 4, 8).astype(np.float32))
    return nn.Dense(8, 4, weight_init=weight, has_bias=False)


def integer_inputs() -> ms.Tensor:
    """Return float32 inputs (6, 8) of integers from 0 to 4."""
    return ms.Tensor(class_indices(5, 6, 8, seed=1).astype(np.float32))


def run_at_o1(net: nn.Cell, dtype: Any, x: ms.Tensor) -> NDArray:
    """Return the output of ``net`` for ``x`` at level O1 with the low precision ``dtype``, in a
    temporary folder, because O1 writes the rewritten network into the current one."""
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        return amp.auto_mixed_precision(net, "O1", dtype)(x).asnumpy()


def amp_output_type() -> NDArray:
    """Run the probe "What a layer gives out under automatic mixed precision" in MindSpore and
    return an output in its own type. `amp.auto_mixed_precision` with `O1` casts the output of every
    layer on its list back to float32."""
    return run_at_o1(nn.SequentialCell(integer_linear()), ms.float16, integer_inputs())


def embedding_type() -> NDArray:
    """Run the probe "Type of what an Embedding gives out" in MindSpore and return an output (3, 2)
    in its own type. Its table is in float32, and so is its output."""
    layer = nn.Embedding(6, 2, dtype=ms.float16)
    layer.embedding_table.set_data(ms.Tensor(class_indices(5, 6, 2).astype(np.float32)))
    return layer(ms.Tensor([0, 2, 5])).asnumpy()


def embedding_type_equal() -> NDArray:
    """Run the probe "Type of what an Embedding gives out" in MindSpore, written to agree with
    PyTorch, and return an output (3, 2) in its own type. MindSpore: `.astype(ms.float16)` after the
    layer."""
    layer = nn.Embedding(6, 2, dtype=ms.float16)
    layer.embedding_table.set_data(ms.Tensor(class_indices(5, 6, 2).astype(np.float32)))
    return layer(ms.Tensor([0, 2, 5])).astype(ms.float16).asnumpy()


def amp_norm() -> NDArray:
    """Run the probe "Norms under automatic mixed precision on a CPU" in MindSpore and return the
    norm's output (6, 4). With `O1` they take and give float32."""
    net = nn.SequentialCell(integer_linear(), nn.LayerNorm((4,), epsilon=1e-5))
    return run_at_o1(net, ms.float16, integer_inputs())


def amp_bfloat16() -> NDArray:
    """Run the probe "bfloat16 on a CPU" in MindSpore, where it raises TypeError; else return an
    output (6, 4). Casts and additions work; `MatMul`, `Conv2D`, `ReLU`, even `Reshape` have no such
    kernel and raise an error."""
    dense = nn.Dense(8, 4, weight_init=ms.Tensor(normal(4, 8, seed=1)), has_bias=False)
    return run_at_o1(nn.SequentialCell(dense), ms.bfloat16, ms.Tensor(normal(6, 8)))


def amp_bfloat16_equal() -> NDArray:
    """Run the probe "bfloat16 on a CPU" in MindSpore, written to agree with PyTorch, and return an
    output (6, 4). MindSpore: round by `x.astype(ms.bfloat16).astype(ms.float32)` and compute in
    float32, which gives the same numbers; or use float16."""

    def rounded(x: Any) -> Any:
        return x.astype(ms.bfloat16).astype(ms.float32)

    x, weight = ms.Tensor(normal(6, 8)), ms.Tensor(normal(4, 8, seed=1))
    return rounded(ops.matmul(rounded(x), rounded(weight).T)).asnumpy()


def loss_scale_start() -> float:
    """Run the probe "First value of a dynamic loss scale" in MindSpore and return the scale.
    `DynamicLossScaleManager` starts at 2²⁴, so that more updates are skipped at first;
    `DynamicLossScaler` has no defaults."""
    return float(amp.DynamicLossScaleManager().get_loss_scale())


def loss_scale_start_equal() -> float:
    """Run the probe "First value of a dynamic loss scale" in MindSpore, written to agree with
    PyTorch, and return the scale. MindSpore: `init_loss_scale=2**16`."""
    return float(amp.DynamicLossScaleManager(init_loss_scale=2**16).get_loss_scale())


def loss_scale_least() -> float:
    """Run the probe "How far a dynamic loss scale may fall" in MindSpore and return the scale after
    20 overflows. `DynamicLossScaler` stops at 1."""
    scaler = amp.DynamicLossScaler(scale_value=2**16, scale_factor=2, scale_window=2000)
    for _ in range(20):
        scaler.adjust(ms.Tensor(False))
    return float(scaler.scale_value.asnumpy())


class SixSamples:
    """A data source that gives the same six samples in every epoch."""

    def __init__(self, size: float) -> None:
        self.x, self.y = size * normal(6, 8, seed=1), normal(6, 4, seed=2)

    def __getitem__(self, i: int) -> tuple[NDArray, NDArray]:
        return self.x[i], self.y[i]

    def __len__(self) -> int:
        return 6


def train_three_updates(manager: Any, size: float = 1.0, **options: Any) -> NDArray:
    """Return the weight (4, 8) of a dense layer after three updates by `Model` with the loss scale
    of ``manager``, on six random samples times ``size``; ``options`` are those of `nn.SGD`."""
    net = nn.Dense(8, 4, weight_init=ms.Tensor(normal(4, 8)), has_bias=False)
    optimizer = nn.SGD(net.trainable_params(), learning_rate=0.1, **options)
    model = ms.Model(net, nn.MSELoss(), optimizer, loss_scale_manager=manager, amp_level="O0")
    data = ds.GeneratorDataset(SixSamples(size), ["x", "y"], shuffle=False).batch(6)
    model.train(3, data, dataset_sink_mode=False)
    return net.weight.asnumpy()


def fixed_scale_manager(scale: float) -> amp.FixedLossScaleManager:
    """Make a manager with the constant loss scale ``scale``, which makes updates with overflowing
    gradients, too."""
    return amp.FixedLossScaleManager(scale, drop_overflow_update=False)


def model_dynamic_loss_scale() -> NDArray:
    """Run the probe "Dynamic loss scaling by Model on a CPU" in MindSpore, where it raises
    ValueError; else return the weight (4, 8) after three updates. `Model` raises an error: on a CPU
    it takes `FixedLossScaleManager(drop_overflow_update=False)` alone."""
    return train_three_updates(amp.DynamicLossScaleManager())


def model_dynamic_loss_scale_equal() -> NDArray:
    """Run the probe "Dynamic loss scaling by Model on a CPU" in MindSpore, written to agree with
    PyTorch, and return the weight (4, 8) after three updates. MindSpore: a loop of your own with
    `amp.DynamicLossScaler` and `amp.all_finite`."""
    return train_by_hand(amp.DynamicLossScaler(2**16, 2, 2000))


def fixed_loss_scale() -> NDArray:
    """Run the probe "Who takes a fixed loss scale off again" in MindSpore and return the weight (4,
    8) after three updates. With `FixedLossScaleManager(drop_overflow_update=False)` the loss is
    multiplied and nothing divides: the gradients stay 1,024 times as large unless the optimizer
    knows the scale, too."""
    return train_three_updates(fixed_scale_manager(1024.0))


def fixed_loss_scale_equal() -> NDArray:
    """Run the probe "Who takes a fixed loss scale off again" in MindSpore, written to agree with
    PyTorch, and return the weight (4, 8) after three updates. MindSpore: the same number as
    `loss_scale=` of the optimizer."""
    return train_three_updates(fixed_scale_manager(1024.0), loss_scale=1024.0)


def overflowing_update() -> NDArray:
    """Run the probe "An update whose gradients overflow" in MindSpore and return the weight (4, 8)
    after three updates. With the only manager that a CPU allows it is made, and the weights are NaN
    from then on."""
    return train_three_updates(fixed_scale_manager(1e38), size=100.0, loss_scale=1e38)


def overflowing_update_equal() -> NDArray:
    """Run the probe "An update whose gradients overflow" in MindSpore, written to agree with
    PyTorch, and return the weight (4, 8) after three updates. MindSpore: a loop of your own that
    asks `amp.all_finite` before the update."""
    return train_by_hand(amp.DynamicLossScaler(1e38, 2, 2000), size=100.0)


def train_by_hand(scaler: amp.DynamicLossScaler, size: float = 1.0) -> NDArray:
    """Return the weight (4, 8) of the layer of `train_three_updates` after three updates in a loop
    without `Model`, scaled by ``scaler``, which skips those whose gradients are not finite; the six
    samples are multiplied by ``size``."""
    net = nn.Dense(8, 4, weight_init=ms.Tensor(normal(4, 8)), has_bias=False)
    optimizer, loss = nn.SGD(net.trainable_params(), learning_rate=0.1), nn.MSELoss()
    x, y = ms.Tensor(size * normal(6, 8, seed=1)), ms.Tensor(normal(6, 4, seed=2))

    def scaled(x: Any, y: Any) -> Any:
        return scaler.scale(loss(net(x), y))

    gradient = ms.value_and_grad(scaled, None, optimizer.parameters)
    for _ in range(3):
        _, gradients = gradient(x, y)
        finite = amp.all_finite(gradients)
        if bool(finite):
            optimizer(scaler.unscale(gradients))
        scaler.adjust(finite)
    return net.weight.asnumpy()


def unscale_in_place() -> NDArray:
    """Run the probe "Where unscaled gradients are" in MindSpore and return the gradient (3,).
    `DynamicLossScaler.unscale` returns new tensors; the gradients that were given stay scaled."""
    scaler, gradients = scaled_gradients()
    scaler.unscale(gradients)
    return gradients[0].asnumpy()


def unscale_in_place_equal() -> NDArray:
    """Run the probe "Where unscaled gradients are" in MindSpore, written to agree with PyTorch, and
    return the gradient (3,). MindSpore: `gradients = scaler.unscale(gradients)`."""
    scaler, gradients = scaled_gradients()
    return scaler.unscale(gradients)[0].asnumpy()


def scaled_gradients() -> tuple[amp.DynamicLossScaler, Any]:
    """Return a loss scaler with scale 1024, and a tuple with the gradient (3,), not unscaled, of a
    weight."""
    scaler = amp.DynamicLossScaler(1024, 2, 2000)
    weight = ms.Parameter(ms.Tensor(np.ones(3, np.float32)), name="weight")
    factors = ms.Tensor(normal(3))

    def scaled() -> Any:
        return scaler.scale((weight * factors).sum())

    return scaler, ms.grad(scaled, None, weights=ms.ParameterTuple([weight]))()
