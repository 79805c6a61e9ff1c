"""PyTorch modules for the layers of the neutral spec."""

from __future__ import annotations

from torch import nn

from dualml.algorithms.model import decoder as of_decoders
from dualml.algorithms.model import layers as spec
from dualml.algorithms.model import vision
from dualml_torch.algorithms.model import decoder, images, modules, recurrent


def make_layer(layer: spec.Layer) -> nn.Module:
    """Make the module for a layer spec, with PyTorch's or zero initial weights; `network.ModelPart`
    itself implements `Branch`, `Merge`, `Swap` and `Dropout`, and shares parameters between layers.

    Raises:
        NotImplementedError: any other layer, those four included; no similar module is taken.
    """
    match layer:
        case spec.Linear(inputs, outputs, bias):
            return nn.Linear(inputs, outputs, bias=bias)
        case spec.Conv2d(inputs, outputs, kernel, padding, bias, stride):
            return nn.Conv2d(inputs, outputs, kernel, stride, padding, bias=bias)
        case spec.Bias(size):
            return modules.Bias(size)
        case spec.MaxPool2d(kernel, _, padding):
            return nn.MaxPool2d(kernel, layer.step, padding)
        case vision.BatchNorm2d(channels, eps, momentum):
            return nn.BatchNorm2d(channels, eps, momentum)
        case vision.GlobalAvgPool2d():
            return images.GlobalAvgPool2d()
        case spec.ReLU():
            return nn.ReLU()
        case spec.Tanh():
            return nn.Tanh()
        case spec.Flatten():
            return nn.Flatten()
        case spec.Embedding(words, features, first):
            return modules.Embedding(words, features, first)
        case spec.RecurrentLayer():
            return recurrent.make_layer(layer)
        case spec.LayerNorm(features, eps):
            return nn.LayerNorm(features, eps=eps)
        case spec.GELU():
            return nn.GELU()
        case spec.Attention(heads, causal):
            return modules.Attention(heads, causal)
        case spec.Position(length, features):
            return modules.Position(length, features)
        case spec.Rows():
            return modules.Rows()
        case spec.MeanPool():
            return modules.MeanPool()
        case spec.First():
            return modules.First()
        case of_decoders.RMSNorm(features, eps):
            return nn.RMSNorm(features, eps=eps)
        case of_decoders.SwiGLU():
            return decoder.SwiGLU()
        case of_decoders.GroupedAttention():
            return decoder.GroupedAttention(layer)
    raise NotImplementedError(f"dualml_torch has no layer {type(layer).__name__}")
