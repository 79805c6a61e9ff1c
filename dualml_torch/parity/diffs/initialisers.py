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
    """Wrap a probe so that it begins with torch's seed 0, and that torch's and NumPy's generators
    are restored after it, also after an error."""

    @functools.wraps(probe)
    def run() -> Any:
        with torch.random.fork_rng(), contextlib.ExitStack() as after:
            after.callback(np.random.set_state, np.random.get_state())
            torch.manual_seed(0)
            return probe()

    return run


def describe_spread(weight: torch.Tensor) -> dict[str, float]:
    """Return the biased standard deviation, minimum and maximum of all elements, as ``std``,
    ``min`` and ``max``."""
    w = weight.detach().numpy()
    return {"std": float(w.std()), "min": float(w.min()), "max": float(w.max())}


@restore_generators
def seed() -> NDArray:
    """Run the probe "The same seed" in PyTorch and return eight numbers that are drawn then.
    `torch.manual_seed(0)` starts torch's own generator."""
    torch.manual_seed(0)
    return torch.randn(8).numpy()


def seed_equal() -> NDArray:
    """Run the probe "The same seed" in PyTorch, written to agree with MindSpore, and return eight
    numbers that are drawn then. Draw what must agree with a NumPy generator and pass it to both."""
    rng = np.random.default_rng(0)
    return tensor(rng.standard_normal(8, np.float32)).numpy()


@restore_generators
def manual_seed() -> float:
    """Run the probe "manual_seed and the initial weights" in PyTorch: seed before each of two
    layers and return the share of their weights that are equal, 1. `torch.manual_seed` fixes
    everything that torch draws."""
    torch.manual_seed(0)
    first = nn.Linear(4, 3).weight
    torch.manual_seed(0)
    return float((nn.Linear(4, 3).weight == first).float().mean())


@restore_generators
def seed_numpy() -> NDArray:
    """Run the probe "Seeding and NumPy" in PyTorch: seed NumPy with 1, then torch with 0, and
    return four numbers drawn from NumPy. `torch.manual_seed` leaves NumPy's generator alone."""
    np.random.seed(1)
    torch.manual_seed(0)
    return np.random.rand(4)


@restore_generators
def seed_numpy_equal() -> NDArray:
    """Run the probe "Seeding and NumPy" in PyTorch, written to agree with MindSpore, and return
    four numbers drawn, after torch is seeded, from a NumPy generator with seed 1. Use generators of
    your own, `np.random.default_rng(seed)`."""
    rng = np.random.default_rng(1)
    torch.manual_seed(0)
    return rng.random(4)


@restore_generators
def init_draws_numpy() -> float:
    """Run the probe "Initial weights and numbers drawn from NumPy" in PyTorch: seed before each of
    two layers, draw a NumPy number before the second, and return the share of their weights that
    are equal. Numbers drawn from NumPy do not change the initial weights."""
    torch.manual_seed(0)
    first = nn.Linear(4, 3).weight
    torch.manual_seed(0)
    np.random.rand()
    return float((nn.Linear(4, 3).weight == first).float().mean())


@restore_generators
def init_draws_numpy_equal() -> float:
    """Run the probe "Initial weights and numbers drawn from NumPy" in PyTorch, written to agree
    with MindSpore, and return the share of equal weights of two layers, each made after the same
    seed. Draw data from a generator of your own, `np.random.default_rng(seed)`."""
    torch.manual_seed(0)
    first = nn.Linear(4, 3).weight
    torch.manual_seed(0)
    np.random.default_rng(1).random()
    return float((nn.Linear(4, 3).weight == first).float().mean())


@restore_generators
def linear_init() -> NDArray:
    """Run the probe "Initial weights of a dense layer" in PyTorch and return the weight (3, 4).
    Kaiming uniform with a = √5, that is ±1/√inputs."""
    torch.manual_seed(0)
    return nn.Linear(4, 3).weight.detach().numpy()


def linear_init_equal() -> NDArray:
    """Run the probe "Initial weights of a dense layer" in PyTorch, written to agree with MindSpore,
    and return the weight (3, 4). Copy the weights of one into the other; a seed is not enough."""
    layer = nn.Linear(4, 3)
    layer.load_state_dict({"weight": tensor(normal(3, 4)), "bias": tensor(normal(3))})
    return layer.weight.detach().numpy()


@restore_generators
def dense_bias_init() -> dict[str, list[float]]:
    """Run the probe "Distribution of a dense layer's weights and biases" in PyTorch and return
    ``weight`` and ``bias`` → [standard deviation, minimum, maximum]. Both uniform within
    ±1/√inputs."""
    layer = nn.Linear(400, 2000)
    return {
        "weight": list(describe_spread(layer.weight).values()),
        "bias": list(describe_spread(layer.bias).values()),
    }


@restore_generators
def conv_init() -> list[float]:
    """Run the probe "Distribution of a convolution's weights" in PyTorch and return [standard
    deviation, minimum, maximum]. Uniform within ±1/√fan-in, where the fan-in counts the channels of
    one group."""
    return list(describe_spread(nn.Conv2d(16, 64, 5, groups=4).weight).values())


@restore_generators
def conv_bias_init() -> list[float]:
    """Run the probe "Distribution of a convolution's bias" in PyTorch and return [standard
    deviation, minimum, maximum]. Uniform within ±1/√fan-in."""
    return list(describe_spread(nn.Conv2d(16, 2000, 5).bias).values())


@restore_generators
def embedding_init() -> float:
    """Run the probe "Initial size of an embedding" in PyTorch and return a table's standard
    deviation. Standard normal, σ = 1."""
    return float(nn.Embedding(500, 100).weight.detach().std())


@restore_generators
def attention_bias_init() -> NDArray:
    """Run the probe "Initial output bias of attention" in PyTorch and return the bias (32,).
    `nn.MultiheadAttention` starts with `out_proj.bias` 0."""
    return nn.MultiheadAttention(32, 4).out_proj.bias.detach().numpy()


@restore_generators
def lstm_init() -> list[float]:
    """Run the probe "Distribution of an LSTM's weights" in PyTorch and return [standard deviation,
    minimum, maximum]. Uniform within ±1/√hidden."""
    return list(describe_spread(nn.LSTM(50, 100).weight_ih_l0).values())


@restore_generators
def initializer_normal() -> float:
    """Run the probe "The default normal initialiser" in PyTorch and return the standard deviation.
    `nn.init.normal_(w)` has σ = 1."""
    weight = nn.init.normal_(torch.empty(300, 200))
    return float(weight.std())


@restore_generators
def normal_order() -> dict[str, float]:
    """Run the probe "Order of mean and σ" in PyTorch and return ``mean`` and ``std`` of the
    weights. `normal_(w, 1.0, 0.02)`: the mean comes first."""
    weight = nn.init.normal_(torch.empty(300, 200), 1.0, 0.02)
    return {"mean": float(weight.mean()), "std": float(weight.std())}


@restore_generators
def initializer_uniform() -> dict[str, float]:
    """Run the probe "The default uniform initialiser" in PyTorch and return ``std``, ``min`` and
    ``max``. `nn.init.uniform_(w)` is within 0 and 1."""
    return describe_spread(nn.init.uniform_(torch.empty(300, 200)))


@restore_generators
def initializer_uniform_equal() -> dict[str, float]:
    """Run the probe "The default uniform initialiser" in PyTorch, written to agree with MindSpore,
    and return ``std``, ``min`` and ``max``. torch: `uniform_(w, -a, a)`; MindSpore:
    `Uniform(a)`."""
    return describe_spread(nn.init.uniform_(torch.empty(300, 200), -0.07, 0.07))


@restore_generators
def truncated_normal() -> dict[str, float]:
    """Run the probe "The default truncated normal initialiser" in PyTorch and return ``std``,
    ``min`` and ``max``. `trunc_normal_(w)` has σ = 1, cut at ±2."""
    return describe_spread(nn.init.trunc_normal_(torch.empty(300, 200)))


@restore_generators
def truncated_normal_bounds() -> float:
    """Run the probe "Bounds of a truncated normal with a small σ" in PyTorch and return the share
    of weights beyond 2 σ. The bounds ±2 are numbers, not multiples of σ: with σ = 0.02 nothing is
    cut."""
    weight = nn.init.trunc_normal_(torch.empty(300, 200), std=0.02)
    return float((weight.abs() > 2 * 0.02).float().mean())


@restore_generators
def xavier_gain() -> list[float]:
    """Run the probe "Xavier initialisation with a gain" in PyTorch and return [standard deviation,
    minimum, maximum]. `xavier_uniform_(w, gain)`: ±gain·√(6 / (in + out))."""
    gain = nn.init.calculate_gain("relu")
    return list(describe_spread(nn.init.xavier_uniform_(torch.empty(300, 200), gain)).values())


@restore_generators
def he_defaults() -> dict[str, float]:
    """Run the probe "Defaults of Kaiming (He) initialisation" in PyTorch and return the maximum of
    ``uniform`` weights and the standard deviation of ``normal`` ones. `kaiming_uniform_(w)`: a = 0,
    fan-in, leaky ReLU."""
    uniform = nn.init.kaiming_uniform_(torch.empty(300, 200))
    scaled = nn.init.kaiming_normal_(torch.empty(300, 200), mode="fan_out", nonlinearity="relu")
    return {"uniform": float(uniform.max()), "normal": float(scaled.std())}


@restore_generators
def he_nonlinearity() -> float:
    """Run the probe "Kaiming initialisation for SELU" in PyTorch and return the standard deviation.
    `nonlinearity='selu'` means a gain of 0.75."""
    weight = nn.init.kaiming_normal_(torch.empty(300, 200), nonlinearity="selu")
    return float(weight.std())


@restore_generators
def he_nonlinearity_equal() -> float:
    """Run the probe "Kaiming initialisation for SELU" in PyTorch, written to agree with MindSpore,
    and return the standard deviation. MindSpore: `Normal(sigma=0.75 / math.sqrt(fan_in))`."""
    weight = nn.init.normal_(torch.empty(300, 200), std=0.75 / math.sqrt(200))
    return float(weight.std())


@restore_generators
def orthogonal() -> NDArray:
    """Run the probe "Orthogonal initialisation" in PyTorch and return weightᵀ·weight (4, 4).
    `orthogonal_(w)` gives orthonormal columns."""
    weight = nn.init.orthogonal_(torch.empty(8, 4))
    return (weight.T @ weight).numpy()
