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
    """Wrap a probe so that it restores the state of all generators."""

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
    """Return standard deviation, minimum and maximum."""
    w = weight.asnumpy()
    return {"std": float(w.std()), "min": float(w.min()), "max": float(w.max())}


@restore_generators
def seed() -> NDArray:
    ms.set_seed(0)
    return ops.randn(8).asnumpy()


def seed_equal() -> NDArray:
    rng = np.random.default_rng(0)
    return Tensor(rng.standard_normal(8, np.float32)).asnumpy()


@restore_generators
def manual_seed() -> float:
    ms.manual_seed(0)
    first = nn.Dense(4, 3).weight.asnumpy()
    ms.manual_seed(0)
    return float((nn.Dense(4, 3).weight.asnumpy() == first).mean())


@restore_generators
def manual_seed_equal() -> float:
    ms.set_seed(0)
    first = nn.Dense(4, 3).weight.asnumpy()
    ms.set_seed(0)
    return float((nn.Dense(4, 3).weight.asnumpy() == first).mean())


@restore_generators
def seed_numpy() -> NDArray:
    np.random.seed(1)
    ms.set_seed(0)
    return np.random.rand(4)


@restore_generators
def seed_numpy_equal() -> NDArray:
    rng = np.random.default_rng(1)
    ms.set_seed(0)
    return rng.random(4)


@restore_generators
def init_draws_numpy() -> float:
    ms.set_seed(0)
    first = nn.Dense(4, 3).weight.asnumpy()
    ms.set_seed(0)
    np.random.rand()
    return float((nn.Dense(4, 3).weight.asnumpy() == first).mean())


@restore_generators
def init_draws_numpy_equal() -> float:
    ms.set_seed(0)
    first = nn.Dense(4, 3).weight.asnumpy()
    ms.set_seed(0)
    np.random.default_rng(1).random()
    return float((nn.Dense(4, 3).weight.asnumpy() == first).mean())


@restore_generators
def linear_init() -> NDArray:
    ms.set_seed(0)
    return nn.Dense(4, 3).weight.asnumpy()


def linear_init_equal() -> NDArray:
    layer = nn.Dense(4, 3)
    saved = {"weight": Tensor(normal(3, 4)), "bias": Tensor(normal(3))}
    ms.load_param_into_net(layer, {name: ms.Parameter(value) for name, value in saved.items()})
    return layer.weight.asnumpy()


@restore_generators
def dense_bias_init() -> dict[str, float]:
    layer = nn.Dense(400, 2000)
    return {
        "weight": list(describe_spread(layer.weight).values()),
        "bias": list(describe_spread(layer.bias).values()),
    }


@restore_generators
def conv_init() -> list[float]:
    return list(describe_spread(nn.Conv2d(16, 64, 5, group=4).weight).values())


@restore_generators
def conv_bias_init() -> list[float]:
    return list(describe_spread(nn.Conv2d(16, 2000, 5, has_bias=True).bias).values())


@restore_generators
def embedding_init() -> float:
    return float(nn.Embedding(500, 100).embedding_table.asnumpy().std())


@restore_generators
def embedding_init_equal() -> float:
    layer = nn.Embedding(500, 100, embedding_table=Normal(sigma=1.0))
    return float(layer.embedding_table.asnumpy().std())


@restore_generators
def attention_bias_init() -> NDArray:
    return nn.MultiheadAttention(32, 4).out_proj.bias.asnumpy()


@restore_generators
def attention_bias_init_equal() -> NDArray:
    layer = nn.MultiheadAttention(32, 4)
    layer.out_proj.bias.set_data(ops.zeros(32))
    return layer.out_proj.bias.asnumpy()


@restore_generators
def lstm_init() -> list[float]:
    weights = {one.name: one for one in nn.LSTM(50, 100).trainable_params()}
    return list(describe_spread(weights["weight_ih_l0"]).values())


@restore_generators
def initializer_normal() -> float:
    weight = initializer(Normal(), (300, 200)).init_data()
    return float(weight.asnumpy().std())


@restore_generators
def initializer_normal_equal() -> float:
    weight = initializer(Normal(sigma=1.0), (300, 200)).init_data()
    return float(weight.asnumpy().std())


@restore_generators
def normal_order() -> dict[str, float]:
    weight = initializer(Normal(1.0, 0.02), (300, 200)).init_data().asnumpy()
    return {"mean": float(weight.mean()), "std": float(weight.std())}


@restore_generators
def normal_order_equal() -> dict[str, float]:
    weight = initializer(Normal(sigma=0.02, mean=1.0), (300, 200)).init_data().asnumpy()
    return {"mean": float(weight.mean()), "std": float(weight.std())}


@restore_generators
def initializer_uniform() -> dict[str, float]:
    return describe_spread(initializer(Uniform(), (300, 200)).init_data())


@restore_generators
def truncated_normal() -> dict[str, float]:
    return describe_spread(initializer(TruncatedNormal(), (300, 200)).init_data())


@restore_generators
def truncated_normal_equal() -> dict[str, float]:
    return describe_spread(initializer(TruncatedNormal(sigma=1.0), (300, 200)).init_data())


@restore_generators
def truncated_normal_bounds() -> float:
    weight = initializer(TruncatedNormal(sigma=0.02), (300, 200)).init_data()
    return float((weight.abs() > 2 * 0.02).asnumpy().mean())


@restore_generators
def xavier_gain() -> list[float]:
    gain = math.sqrt(2)
    return list(describe_spread(initializer(XavierUniform(gain), (300, 200)).init_data()).values())


@restore_generators
def he_defaults() -> dict[str, float]:
    uniform = initializer(HeUniform(), (300, 200)).init_data()
    scaled = initializer(HeNormal(mode="fan_out", nonlinearity="relu"), (300, 200)).init_data()
    return {"uniform": float(uniform.max()), "normal": float(scaled.asnumpy().std())}


@restore_generators
def he_nonlinearity() -> float:
    weight = initializer(HeNormal(nonlinearity="selu"), (300, 200)).init_data()
    return float(weight.asnumpy().std())


@restore_generators
def he_nonlinearity_equal() -> float:
    weight = initializer(Normal(sigma=0.75 / math.sqrt(200)), (300, 200)).init_data()
    return float(weight.asnumpy().std())


@restore_generators
def orthogonal() -> NDArray:
    weight = initializer(Orthogonal(), (8, 4)).init_data()
    return (weight.T @ weight).asnumpy()
