"""Each layer of the neutral spec as the `torch.nn` module that means the same."""

from __future__ import annotations

from torch import nn

from dualml.model import spec


def realise(layer: spec.Layer) -> nn.Module:
    """The module for one layer spec.

    Raises:
        NotImplementedError: a layer this backend does not know; never a near miss.
    """
    match layer:
        case spec.Linear(inputs, outputs):
            return nn.Linear(inputs, outputs)
        case spec.Conv2d(inputs, outputs, kernel, padding):
            return nn.Conv2d(inputs, outputs, kernel, padding=padding)
        case spec.MaxPool2d(kernel):
            return nn.MaxPool2d(kernel)
        case spec.ReLU():
            return nn.ReLU()
        case spec.Tanh():
            return nn.Tanh()
        case spec.Flatten():
            return nn.Flatten()
    raise NotImplementedError(f"dualml_torch has no layer {type(layer).__name__}")
