"""Probes of initializers in MindSpore."""

from __future__ import annotations

import contextlib
import functools
import importlib
import math
from collections.abc import Callable
from typing import Any

import mindspore as ms
import numpy as np
from mindspore import Tensor, nn, ops
from mindspore.common.initializer import (
    HeNormal,
    HeUniform,
    Normal,
    Orthogonal,
    TruncatedNormal,
    Uniform,
    XavierUniform,
    initializer,
)
from numpy.typing import NDArray

from dualml.parity.diffs.inputs import normal


def restore_generators(probe: Callable[[], Any]) -> Callable[[], Any]:
    """Wrap a probe so that it begins with MindSpore's seed 0, which seeds NumPy, too, and that the
    seeds and generators of MindSpore, its datasets and NumPy are restored after it."""

    @functools.wraps(probe)
    def run() -> Any:
        # no public function resets the seed to its initial "none"
        module = importlib.import_module("mindspore.common.seed")
        with contextlib.ExitStack() as after:
            after.callback(setattr, module, "_GLOBAL_SEED", ms.get_seed())
            after.callback(ms.dataset.config.set_seed, ms.dataset.config.get_seed())
            after.callback(ms.set_rng_state, ms.get_rng_state())
            after.callback(np.random.set_state, np.random.get_state())
            ms.set_seed(0)
            return probe()

    return run


def describe_spread(weight: Tensor) -> dict[str, float]:
    """Return the biased standard deviation, minimum and maximum of all elements, as ``std``,
    ``min`` and ``max``."""
    w = weight.asnumpy()
    return {"std": float(w.std()), "min": float(w.min()), "max": float(w.max())}


@restore_generators
def seed() -> NDArray:
    """Run the probe "The same seed" in MindSpore and return eight numbers that are drawn then.
    `ms.set_seed(0)` starts another one: other numbers."""
    ms.set_seed(0)
    return ops.randn(8).asnumpy()


def seed_equal() -> NDArray:
    """Run the probe "The same seed" in MindSpore, written to agree with PyTorch, and return eight
    numbers that are drawn then. Draw what must agree with a NumPy generator and pass it to both."""
    rng = np.random.default_rng(0)
    return Tensor(rng.standard_normal(8, np.float32)).asnumpy()


@restore_generators
def manual_seed() -> float:
    """Run the probe "manual_seed and the initial weights" in MindSpore: call `ms.manual_seed(0)`
    before each of two layers and return the share of their weights that are equal. It exists but
    fixes neither initial weights nor `nn.Dropout` nor `ops.randn`."""
    ms.manual_seed(0)
    first = nn.Dense(4, 3).weight.asnumpy()
    ms.manual_seed(0)
    return float((nn.Dense(4, 3).weight.asnumpy() == first).mean())


@restore_generators
def manual_seed_equal() -> float:
    """Run the probe "manual_seed and the initial weights" in MindSpore, written to agree with
    PyTorch: seed before each of two layers and return the share of their weights that are equal, 1.
    MindSpore: `ms.set_seed`."""
    ms.set_seed(0)
    first = nn.Dense(4, 3).weight.asnumpy()
    ms.set_seed(0)
    return float((nn.Dense(4, 3).weight.asnumpy() == first).mean())


@restore_generators
def seed_numpy() -> NDArray:
    """Run the probe "Seeding and NumPy" in MindSpore: seed NumPy with 1, then MindSpore with 0, and
    return four numbers drawn from NumPy. `ms.set_seed` also calls `np.random.seed` and seeds the
    datasets."""
    np.random.seed(1)
    ms.set_seed(0)
    return np.random.rand(4)


@restore_generators
def seed_numpy_equal() -> NDArray:
    """Run the probe "Seeding and NumPy" in MindSpore, written to agree with PyTorch, and return
    four numbers drawn, after MindSpore is seeded, from a NumPy generator with seed 1. Use
    generators of your own, `np.random.default_rng(seed)`."""
    rng = np.random.default_rng(1)
    ms.set_seed(0)
    return rng.random(4)


@restore_generators
def init_draws_numpy() -> float:
    """Run the probe "Initial weights and numbers drawn from NumPy" in MindSpore: seed before each
    of two layers, draw a NumPy number before the second, and return the share of their weights that
    are equal. Initial weights come from NumPy's global generator: one number drawn before the
    network is made changes them."""
    ms.set_seed(0)
    first = nn.Dense(4, 3).weight.asnumpy()
    ms.set_seed(0)
    np.random.rand()
    return float((nn.Dense(4, 3).weight.asnumpy() == first).mean())


@restore_generators
def init_draws_numpy_equal() -> float:
    """Run the probe "Initial weights and numbers drawn from NumPy" in MindSpore, written to agree
    with PyTorch, and return the share of equal weights of two layers, each made after the same
    seed. Draw data from a generator of your own, `np.random.default_rng(seed)`."""
    ms.set_seed(0)
    first = nn.Dense(4, 3).weight.asnumpy()
    ms.set_seed(0)
    np.random.default_rng(1).random()
    return float((nn.Dense(4, 3).weight.asnumpy() == first).mean())


@restore_generators
def linear_init() -> NDArray:
    """Run the probe "Initial weights of a dense layer" in MindSpore and return the weight (3, 4).
    As in PyTorch, `HeUniform(√5)`, from another generator."""
    ms.set_seed(0)
    return nn.Dense(4, 3).weight.asnumpy()


def linear_init_equal() -> NDArray:
    """Run the probe "Initial weights of a dense layer" in MindSpore, written to agree with PyTorch,
    and return the weight (3, 4). Copy the weights of one into the other; a seed is not enough."""
    layer = nn.Dense(4, 3)
    saved = {"weight": Tensor(normal(3, 4)), "bias": Tensor(normal(3))}
    ms.load_param_into_net(layer, {name: ms.Parameter(value) for name, value in saved.items()})
    return layer.weight.asnumpy()


@restore_generators
def dense_bias_init() -> dict[str, list[float]]:
    """Run the probe "Distribution of a dense layer's weights and biases" in MindSpore and return
    ``weight`` and ``bias`` → [standard deviation, minimum, maximum]. As in PyTorch; only the
    numbers differ."""
    layer = nn.Dense(400, 2000)
    return {
        "weight": list(describe_spread(layer.weight).values()),
        "bias": list(describe_spread(layer.bias).values()),
    }


@restore_generators
def conv_init() -> list[float]:
    """Run the probe "Distribution of a convolution's weights" in MindSpore and return [standard
    deviation, minimum, maximum]. As in PyTorch, here with groups."""
    return list(describe_spread(nn.Conv2d(16, 64, 5, group=4).weight).values())


@restore_generators
def conv_bias_init() -> list[float]:
    """Run the probe "Distribution of a convolution's bias" in MindSpore and return [standard
    deviation, minimum, maximum]. As in PyTorch, once `has_bias=True` gives it one."""
    return list(describe_spread(nn.Conv2d(16, 2000, 5, has_bias=True).bias).values())


@restore_generators
def embedding_init() -> float:
    """Run the probe "Initial size of an embedding" in MindSpore and return a table's standard
    deviation. `'normal'`, which is σ = 0.01."""
    return float(nn.Embedding(500, 100).embedding_table.asnumpy().std())


@restore_generators
def embedding_init_equal() -> float:
    """Run the probe "Initial size of an embedding" in MindSpore, written to agree with PyTorch, and
    return a table's standard deviation. MindSpore: `embedding_table=Normal(sigma=1.0)`."""
    layer = nn.Embedding(500, 100, embedding_table=Normal(sigma=1.0))
    return float(layer.embedding_table.asnumpy().std())


@restore_generators
def attention_bias_init() -> NDArray:
    """Run the probe "Initial output bias of attention" in MindSpore and return the bias (32,). It
    is drawn uniformly within ±1/√width."""
    return nn.MultiheadAttention(32, 4).out_proj.bias.asnumpy()


@restore_generators
def attention_bias_init_equal() -> NDArray:
    """Run the probe "Initial output bias of attention" in MindSpore, written to agree with PyTorch,
    and return the bias (32,). MindSpore: `layer.out_proj.bias.set_data(ops.zeros(width))`."""
    layer = nn.MultiheadAttention(32, 4)
    layer.out_proj.bias.set_data(ops.zeros(32))
    return layer.out_proj.bias.asnumpy()


@restore_generators
def lstm_init() -> list[float]:
    """Run the probe "Distribution of an LSTM's weights" in MindSpore and return [standard
    deviation, minimum, maximum]. As in PyTorch."""
    weights = {one.name: one for one in nn.LSTM(50, 100).trainable_params()}
    return list(describe_spread(weights["weight_ih_l0"]).values())


@restore_generators
def initializer_normal() -> float:
    """Run the probe "The default normal initialiser" in MindSpore and return the standard
    deviation. `Normal()` and `'normal'` have σ = 0.01."""
    weight = initializer(Normal(), (300, 200)).init_data()
    return float(weight.asnumpy().std())


@restore_generators
def initializer_normal_equal() -> float:
    """Run the probe "The default normal initialiser" in MindSpore, written to agree with PyTorch,
    and return the standard deviation. Always pass σ."""
    weight = initializer(Normal(sigma=1.0), (300, 200)).init_data()
    return float(weight.asnumpy().std())


@restore_generators
def normal_order() -> dict[str, float]:
    """Run the probe "Order of mean and σ" in MindSpore and return ``mean`` and ``std`` of the
    weights. `Normal(1.0, 0.02)`: σ comes first."""
    weight = initializer(Normal(1.0, 0.02), (300, 200)).init_data().asnumpy()
    return {"mean": float(weight.mean()), "std": float(weight.std())}


@restore_generators
def normal_order_equal() -> dict[str, float]:
    """Run the probe "Order of mean and σ" in MindSpore, written to agree with PyTorch, and return
    ``mean`` and ``std`` of the weights. MindSpore: `Normal(sigma=0.02, mean=1.0)`."""
    weight = initializer(Normal(sigma=0.02, mean=1.0), (300, 200)).init_data().asnumpy()
    return {"mean": float(weight.mean()), "std": float(weight.std())}


@restore_generators
def initializer_uniform() -> dict[str, float]:
    """Run the probe "The default uniform initialiser" in MindSpore and return ``std``, ``min`` and
    ``max``. `Uniform()` is within ±0.07, and `Uniform(a)` within ±a."""
    return describe_spread(initializer(Uniform(), (300, 200)).init_data())


@restore_generators
def truncated_normal() -> dict[str, float]:
    """Run the probe "The default truncated normal initialiser" in MindSpore and return ``std``,
    ``min`` and ``max``. `TruncatedNormal()` has σ = 0.01."""
    return describe_spread(initializer(TruncatedNormal(), (300, 200)).init_data())


@restore_generators
def truncated_normal_equal() -> dict[str, float]:
    """Run the probe "The default truncated normal initialiser" in MindSpore, written to agree with
    PyTorch, and return ``std``, ``min`` and ``max``. Always pass σ and the bounds."""
    return describe_spread(initializer(TruncatedNormal(sigma=1.0), (300, 200)).init_data())


@restore_generators
def truncated_normal_bounds() -> float:
    """Run the probe "Bounds of a truncated normal with a small σ" in MindSpore and return the share
    of weights beyond 2 σ. As in PyTorch."""
    weight = initializer(TruncatedNormal(sigma=0.02), (300, 200)).init_data()
    return float((weight.abs() > 2 * 0.02).asnumpy().mean())


@restore_generators
def xavier_gain() -> list[float]:
    """Run the probe "Xavier initialisation with a gain" in MindSpore and return [standard
    deviation, minimum, maximum]. `XavierUniform(gain)`: the same; there is no public
    `calculate_gain`."""
    gain = math.sqrt(2)
    return list(describe_spread(initializer(XavierUniform(gain), (300, 200)).init_data()).values())


@restore_generators
def he_defaults() -> dict[str, float]:
    """Run the probe "Defaults of Kaiming (He) initialisation" in MindSpore and return the maximum
    of ``uniform`` weights and the standard deviation of ``normal`` ones. `HeUniform()` and
    `HeNormal()`: the same arguments and defaults."""
    uniform = initializer(HeUniform(), (300, 200)).init_data()
    scaled = initializer(HeNormal(mode="fan_out", nonlinearity="relu"), (300, 200)).init_data()
    return {"uniform": float(uniform.max()), "normal": float(scaled.asnumpy().std())}


@restore_generators
def he_nonlinearity() -> float:
    """Run the probe "Kaiming initialisation for SELU" in MindSpore, where it raises ValueError;
    else return the standard deviation. It raises an error: only sigmoid, tanh, relu, leaky_relu and
    linear layers are known."""
    weight = initializer(HeNormal(nonlinearity="selu"), (300, 200)).init_data()
    return float(weight.asnumpy().std())


@restore_generators
def he_nonlinearity_equal() -> float:
    """Run the probe "Kaiming initialisation for SELU" in MindSpore, written to agree with PyTorch,
    and return the standard deviation. MindSpore: `Normal(sigma=0.75 / math.sqrt(fan_in))`."""
    weight = initializer(Normal(sigma=0.75 / math.sqrt(200)), (300, 200)).init_data()
    return float(weight.asnumpy().std())


@restore_generators
def orthogonal() -> NDArray:
    """Run the probe "Orthogonal initialisation" in MindSpore and return weightᵀ·weight (4, 4).
    `Orthogonal()` too."""
    weight = initializer(Orthogonal(), (8, 4)).init_data()
    return (weight.T @ weight).asnumpy()
