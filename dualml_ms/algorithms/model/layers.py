"""MindSpore cells for the layers of the neutral spec.

Every argument is given, because MindSpore's defaults differ (convolutions pad to 'same' and have no
bias, pooling has a stride of one).
"""

from __future__ import annotations

from mindspore import nn

from dualml.algorithms.model import decoder as of_decoders
from dualml.algorithms.model import layers as spec
from dualml.algorithms.model import vision
from dualml_ms.algorithms.model import decoder, images, modules, recurrent


def make_layer(layer: spec.Layer) -> nn.Cell:
    """Make the cell for a layer spec; `network.ModelPart` itself implements `Branch`, `Merge`,
    `Swap` and `Dropout`, and shares parameters between layers.

    Raises:
        NotImplementedError: any other layer, those four included; no similar cell is taken.
    """
    match layer:
        case spec.Linear(inputs, outputs, bias):
            return nn.Dense(inputs, outputs, has_bias=bias)
        case spec.Conv2d(inputs, outputs, kernel, padding, bias, stride):
            options = {"pad_mode": "pad", "padding": padding, "has_bias": bias}
            return nn.Conv2d(inputs, outputs, kernel, stride, **options)
        case spec.Bias(size):
            return modules.Bias(size)
        case spec.MaxPool2d(kernel, _, padding):
            return modules.MaxPool2d(kernel, layer.step, padding)
        case vision.BatchNorm2d(channels, eps, momentum):
            return images.BatchNorm2d(channels, eps, momentum)
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
            return modules.LayerNorm(features, eps)
        case spec.GELU():
            return nn.GELU(approximate=False)
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
            return decoder.RMSNorm(features, eps)
        case of_decoders.SwiGLU():
            return decoder.SwiGLU()
        case of_decoders.GroupedAttention():
            return decoder.GroupedAttention(layer)
    raise NotImplementedError(f"dualml_ms has no layer {type(layer).__name__}")


def make_low_precision_layer(layer: spec.Layer, lower: modules.LowPrecisionCast) -> nn.Cell:
    """Make the cell for a layer of a model in low precision, see `dualml.algorithms.precision`; a
    layer without a form of its own for that gets the cell of `make_layer`."""
    match layer:
        case spec.Linear(inputs, outputs, bias):
            return modules.LowPrecisionDense(inputs, outputs, bias, lower)
        case spec.Conv2d(inputs, outputs, kernel, padding, bias, stride):
            return modules.LowPrecisionConv2d(inputs, outputs, kernel, padding, bias, lower, stride)
        case spec.RowBias(size):
            return modules.LowPrecisionBias(size, lower)
        case spec.RecurrentLayer():
            return recurrent.make_layer(layer, lower)
    return make_layer(layer)
