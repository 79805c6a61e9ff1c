"""A layer spec executed by NumPy in float64: forward, and backward by hand."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dualml.model.spec import Layer, ModelSpec
from dualml.reference.layers import PAIRS
from dualml.reference.losses import LOSSES

Array = NDArray[np.float64]
Params = dict[str, Array]


class Model:
    """The referee's model.

    Args:
        spec: layers in sequence.
        weights: canonical name → array of any float type; kept as float64.
    """

    def __init__(self, spec: ModelSpec, weights: Mapping[str, NDArray[Any]]) -> None:
        self.spec = spec
        self.weights: Params = {name: np.array(w, np.float64) for name, w in weights.items()}

    def _params(self, name: str) -> Params:
        keys = ("weight", "bias")
        return {k: self.weights[f"{name}.{k}"] for k in keys if f"{name}.{k}" in self.weights}

    def forward(self, x: NDArray[Any]) -> tuple[Array, list[tuple[str, Layer, Array, Any]]]:
        """Logits, and for each layer its name, spec, output and what its backward needs."""
        value, tape = np.asarray(x, np.float64), []
        for name, layer in self.spec.layers:
            value, cache = PAIRS[type(layer)][0](layer, value, self._params(name))
            tape.append((name, layer, value, cache))
        return value, tape

    def loss_and_gradients(
        self, x: NDArray[Any], y: NDArray[np.int64], loss: str
    ) -> tuple[float, Params]:
        """Mean loss over (B, …) samples with labels (B,), and the gradient of every parameter."""
        logits, tape = self.forward(x)
        value, flow = LOSSES[loss](logits, y)
        found: Params = {}
        for name, layer, _, cache in reversed(tape):
            flow, grads = PAIRS[type(layer)][1](layer, flow, cache, self._params(name))
            found.update({f"{name}.{leaf}": g for leaf, g in grads.items()})
        return value, {name: found[name] for name in self.weights}
