"""Probes of initializers in PyTorch."""

from __future__ import annotations

import contextlib
import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn, tensor

from dualml.parity.diffs.inputs import normal


def restore_generators(probe: Callable[[], Any]) -> Callable[[], Any]:
    """Wrap a probe so that it restores the state of torch's and NumPy's generators."""

    @functools.wraps(probe)
    def run() -> Any:
        with torch.random.fork_rng(), contextlib.ExitStack() as after:
            after.callback(np.random.set_state, np.random.get_state())
            torch.manual_seed(0)
            return probe()

    return run


def describe_spread(weight: torch.Tensor) -> dict[str, float]:
    """Return standard deviation, minimum and maximum."""
    w = weight.detach().numpy()
    return {"std": float(w.std()), "min": float(w.min()), "max": float(w.max())}


@restore_generators
def seed() -> NDArray:
    torch.manual_seed(0)
    return torch.randn(8).numpy()


def seed_equal() -> NDArray:
    rng = np.random.default_rng(0)
    return tensor(rng.standard_normal(8, np.float32)).numpy()


@restore_generators
def manual_seed() -> float:
    torch.manual_seed(0)
    first = nn.Linear(4, 3).weight
    torch.manual_seed(0)
    return float((nn.Linear(4, 3).weight == first).float().mean())


@restore_generators
def seed_numpy() -> NDArray:
    np.random.seed(1)
    torch.manual_seed(0)
    return np.random.rand(4)


@restore_generators
def seed_numpy_equal() -> NDArray:
    rng = np.random.default_rng(1)
    torch.manual_seed(0)
    return rng.random(4)


@restore_generators
def init_draws_numpy() -> float:
    torch.manual_seed(0)
    first = nn.Linear(4, 3).weight
    torch.manual_seed(0)
    np.random.rand()
    return float((nn.Linear(4, 3).weight == first).float().mean())


@restore_generators
def init_draws_numpy_equal() -> float:
    torch.manual_seed(0)
    first = nn.Linear(4, 3).weight
    torch.manual_seed(0)
    np.random.default_rng(1).random()
    return float((nn.Linear(4, 3).weight == first).float().mean())


@restore_generators
def linear_init() -> NDArray:
    torch.manual_seed(0)
    return nn.Linear(4, 3).weight.detach().numpy()


def linear_init_equal() -> NDArray:
    layer = nn.Linear(4, 3)
    layer.load_state_dict({"weight": tensor(normal(3, 4)), "bias": tensor(normal(3))})
    return layer.weight.detach().numpy()


@restore_generators
def dense_bias_init() -> dict[str, float]:
    layer = nn.Linear(400, 2000)
    return {
        "weight": list(describe_spread(layer.weight).values()),
        "bias": list(describe_spread(layer.bias).values()),
    }


@restore_generators
def conv_init() -> list[float]:
    return list(describe_spread(nn.Conv2d(16, 64, 5, groups=4).weight).values())


@restore_generators
def conv_bias_init() -> list[float]:
    return list(describe_spread(nn.Conv2d(16, 2000, 5).bias).values())


@restore_generators
def embedding_init() -> float:
    return float(nn.Embedding(500, 100).weight.detach().std())


@restore_generators
def attention_bias_init() -> NDArray:
    return nn.MultiheadAttention(32, 4).out_proj.bias.detach().numpy()


@restore_generators
def lstm_init() -> list[float]:
    return list(describe_spread(nn.LSTM(50, 100).weight_ih_l0).values())


@restore_generators
def initializer_normal() -> float:
    weight = nn.init.normal_(torch.empty(300, 200))
    return float(weight.std())


@restore_generators
def normal_order() -> dict[str, float]:
    weight = nn.init.normal_(torch.empty(300, 200), 1.0, 0.02)
    return {"mean": float(weight.mean()), "std": float(weight.std())}


@restore_generators
def initializer_uniform() -> dict[str, float]:
    return describe_spread(nn.init.uniform_(torch.empty(300, 200)))


@restore_generators
def initializer_uniform_equal() -> dict[str, float]:
    return describe_spread(nn.init.uniform_(torch.empty(300, 200), -0.07, 0.07))


@restore_generators
def truncated_normal() -> dict[str, float]:
    return describe_spread(nn.init.trunc_normal_(torch.empty(300, 200)))


@restore_generators
def truncated_normal_bounds() -> float:
    weight = nn.init.trunc_normal_(torch.empty(300, 200), std=0.02)
    return float((weight.abs() > 2 * 0.02).float().mean())


@restore_generators
def xavier_gain() -> list[float]:
    gain = nn.init.calculate_gain("relu")
    return list(describe_spread(nn.init.xavier_uniform_(torch.empty(300, 200), gain)).values())


@restore_generators
def he_defaults() -> dict[str, float]:
    uniform = nn.init.kaiming_uniform_(torch.empty(300, 200))
    scaled = nn.init.kaiming_normal_(torch.empty(300, 200), mode="fan_out", nonlinearity="relu")
    return {"uniform": float(uniform.max()), "normal": float(scaled.std())}


@restore_generators
def he_nonlinearity() -> float:
    weight = nn.init.kaiming_normal_(torch.empty(300, 200), nonlinearity="selu")
    return float(weight.std())


@restore_generators
def he_nonlinearity_equal() -> float:
    weight = nn.init.normal_(torch.empty(300, 200), std=0.75 / math.sqrt(200))
    return float(weight.std())


@restore_generators
def orthogonal() -> NDArray:
    weight = nn.init.orthogonal_(torch.empty(8, 4))
    return (weight.T @ weight).numpy()
