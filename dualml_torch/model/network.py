"""A layer spec as an `nn.Module` whose parameters carry the canonical names."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping

import torch
from numpy.typing import NDArray
from torch import nn

from dualml.model.spec import ModelSpec
from dualml_torch.model.layers import realise


class Network(nn.Sequential):
    """The layers of ``spec`` in sequence; parameters are named ``conv1.weight``, ``fc1.bias``, …

    Example:
        >>> from dualml.model import model
        >>> Network(model("softmax"))(torch.zeros(2, 1, 28, 28)).shape
        torch.Size([2, 10])
    """

    def __init__(self, spec: ModelSpec) -> None:
        super().__init__(OrderedDict((name, realise(layer)) for name, layer in spec.layers))
        self.spec = spec

    def canonical(self) -> dict[str, nn.Parameter]:
        """Canonical name → parameter, in the order of the spec."""
        own = dict(self.named_parameters())
        return {name: own[name] for name in self.spec.parameters()}

    def load(self, weights: Mapping[str, NDArray]) -> None:
        """Copy canonical weights into the parameters."""
        with torch.no_grad():
            for name, parameter in self.canonical().items():
                parameter.copy_(torch.from_numpy(weights[name]))

    def activations(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        """Layer name → output for ``x``."""
        found = {}
        for name, layer in self.named_children():
            x = found[name] = layer(x)
        return found
