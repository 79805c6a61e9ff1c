"""Initial weights, drawn by NumPy so that every backend starts from the same numbers."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from dualml.model.spec import ModelSpec
from dualml.seeds import generator


def initial_weights(spec: ModelSpec, seed: int) -> dict[str, NDArray[np.float32]]:
    """Canonical name → float32 array, weights and biases uniform in ±1/√fan_in.

    The law is PyTorch's and MindSpore's default for linear and convolution layers (He uniform with
    a = √5). Every tensor has a generator of its own: adding a layer leaves the others as they were.

    Source: He et al. 2015, "Delving Deep into Rectifiers", eq. 14, with gain √(2/(1+a²)), a = √5.
    """
    shapes = spec.parameters()
    out = {}
    for name, shape in shapes.items():
        fan_in = math.prod(shapes[name.rpartition(".")[0] + ".weight"][1:])
        bound = 1 / math.sqrt(fan_in)
        draw = generator(seed, "init", spec.name, name).uniform(-bound, bound, shape)
        out[name] = draw.astype(np.float32)
    return out
