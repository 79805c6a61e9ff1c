"""Initial weights, drawn by NumPy so that every backend starts from the same numbers."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from dualml.algorithms.model.base import Layer
from dualml.algorithms.model.decoder import RMSNorm
from dualml.algorithms.model.layers import (
    Bias,
    Embedding,
    LayerNorm,
    Linear,
    Position,
    RecurrentLayer,
)
from dualml.algorithms.model.spec import ModelSpec, canonical_parameter_names
from dualml.algorithms.model.vision import BatchNorm2d
from dualml.common.seeds import make_generator


def initial_weights(spec: ModelSpec, seed: int) -> dict[str, NDArray[np.float32]]:
    """Draw the initial weights, and set the initial buffers: canonical name → float32 array of the
    shape in ``spec``.

    Every tensor has its own generator, derived from ``seed``: adding a layer leaves the others
    unchanged. Running means start at 0, running variances at 1.
    """
    return {
        name: np.full(shape, float(name.endswith("_var")), np.float32)
        if name in spec.buffers
        else initial_tensor(spec, seed, name)
        for name, shape in spec.tensors().items()
    }


def initial_tensor(spec: ModelSpec, seed: int, full: str) -> NDArray[np.float32]:
    """Draw the initial float32 tensor of the parameter with the canonical name ``full``; one that
    layers share is drawn for the first of them.

    Raises:
        KeyError: ``full`` names no parameter of the model; a buffer is none.
    """
    for name, layer in spec.layers:
        for leaf, own in canonical_parameter_names(name, layer).items():
            if own == full:
                draw = make_generator(seed, "init", spec.name, full)
                return draw_initial(layer, leaf, layer.parameters()[leaf], draw).astype(np.float32)
    raise KeyError(full)


def draw_initial(
    layer: Layer, leaf: str, shape: tuple[int, ...], draw: np.random.Generator
) -> NDArray[np.float64]:
    """Draw one initial tensor from its layer's distribution, in float64.

    Linear and convolution layers: weights and biases uniform in ±1/√fan_in, PyTorch's and
    MindSpore's default (He et al. 2015, "Delving Deep into Rectifiers", eq. 14, with gain
    √(2/(1+a²)), a = √5). Recurrent layers: all uniform in ±1/√hidden, the default of both.
    Embeddings: N(0, 0.1²); PyTorch's default is N(0, 1) and MindSpore's N(0, 0.01²), so that they
    have none in common: with this one the first hidden state is neither saturated nor nearly zero.
    With ``init_range`` the weight of an embedding or a linear layer is uniform in ± that range, and
    its bias zero, as in PyTorch's example ``word_language_model``. Positions: N(0, 0.02²), as
    Dosovitskiy et al. 2021, "An Image Is Worth 16x16 Words". Norms start at weight 1 and bias 0,
    and `Bias` at 0.
    """
    match layer:
        case RecurrentLayer(hidden=size):
            return _uniform(draw, size, shape)
        case Embedding(init_range=bound) | Linear(init_range=bound) if bound:
            return draw.uniform(-bound, bound, shape) if leaf == "weight" else np.zeros(shape)
        case Embedding():
            return draw.normal(0, 0.1, shape)
        case Position():
            return draw.normal(0, 0.02, shape)
        case LayerNorm() | RMSNorm() | BatchNorm2d():
            return np.full(shape, 1.0 if leaf == "weight" else 0.0)
        case Bias():
            return np.zeros(shape)  # the fan-in of the layer it is added to is unknown here
    return _uniform(draw, math.prod(layer.parameters()["weight"][1:]), shape)


def _uniform(draw: np.random.Generator, fan_in: int, shape: tuple[int, ...]) -> NDArray[np.float64]:
    """Draw a float64 tensor of ``shape``, uniform in ±1/√fan_in."""
    bound = 1 / math.sqrt(fan_in)
    return draw.uniform(-bound, bound, shape)
