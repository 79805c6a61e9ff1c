"""A layer spec as an `nn.Cell` whose parameters carry the canonical names."""

from __future__ import annotations

from collections.abc import Mapping

import mindspore as ms
from mindspore import nn
from numpy.typing import NDArray

from dualml.model.spec import ModelSpec
from dualml_ms.model.layers import realise


class Network(nn.Cell):
    """The layers of ``spec`` in sequence; parameters are named ``conv1.weight``, ``fc1.bias``, …

    Example:
        >>> from dualml.model import model
        >>> Network(model("softmax"))(ms.ops.zeros((2, 1, 28, 28))).shape
        (2, 10)
    """

    def __init__(self, spec: ModelSpec) -> None:
        super().__init__()
        self.spec = spec
        for name, layer in spec.layers:
            setattr(self, name, realise(layer))
        # A CellList would rename the parameters; the attributes above keep the canonical names.
        self.order = [getattr(self, name) for name, _ in spec.layers]

    def construct(self, x):
        for layer in self.order:
            x = layer(x)
        return x

    def canonical(self) -> dict[str, ms.Parameter]:
        """Canonical name → parameter, in the order of the spec."""
        own = {parameter.name: parameter for parameter in self.trainable_params()}
        return {name: own[name] for name in self.spec.parameters()}

    def load(self, weights: Mapping[str, NDArray]) -> None:
        """Copy canonical weights into the parameters."""
        for name, parameter in self.canonical().items():
            parameter.set_data(ms.Tensor(weights[name], parameter.dtype))


class Activations(nn.Cell):
    """The outputs of every layer for ``x``, as a tuple in layer order."""

    def __init__(self, network: Network) -> None:
        super().__init__(auto_prefix=False)
        self.order = network.order

    def construct(self, x):
        found = ()
        for layer in self.order:
            x = layer(x)
            found += (x,)
        return found
