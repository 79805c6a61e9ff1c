"""Residual networks for colour images, with torchvision's layers and names."""

from __future__ import annotations

from dualml.algorithms.model.base import Layer, Shape
from dualml.algorithms.model.layers import Branch, Conv2d, Linear, MaxPool2d, Merge, ReLU, Swap
from dualml.algorithms.model.spec import ModelSpec
from dualml.algorithms.model.vision import BatchNorm2d, GlobalAvgPool2d

#: Channels of the first of the four stages; each later stage has twice as many as the one before.
WIDTH = 64
COLOUR = (3, 32, 32)


def resnet18(shape: Shape = COLOUR, classes: int = 10, width: int = WIDTH) -> ModelSpec:
    """Return ResNet-18 as torchvision's ``resnet18(num_classes=classes)``: parameters and running
    statistics have the same names and shapes, and equal weights give equal outputs. The initial
    weights are others (`dualml.algorithms.model.init`).

    Args:
        shape: shape of an image, (C, H, W).
        width: channels of the first stage; torchvision's has 64.

    Source: He et al. 2016, "Deep Residual Learning for Image Recognition", table 1 and fig. 2, with
    projections where the shape changes (option B).
    """
    first = Conv2d(shape[0], width, 7, padding=3, bias=False, stride=2)
    pool = MaxPool2d(3, stride=2, padding=1)
    return make_resnet("resnet18", shape, classes, width, first, [("maxpool", pool)])


def resnet18_cifar(shape: Shape = COLOUR, classes: int = 10, width: int = WIDTH) -> ModelSpec:
    """Return ResNet-18 for small images: it starts with a 3×3 convolution of stride 1 and has no
    initial pooling. Arguments as for `resnet18`.

    Source: He et al. 2016, sec. 4.2, whose networks for 32×32 pixels begin so.
    """
    first = Conv2d(shape[0], width, 3, padding=1, bias=False)
    return make_resnet("resnet18_cifar", shape, classes, width, first, [])


def make_resnet(
    name: str,
    shape: Shape,
    classes: int,
    width: int,
    first: Conv2d,
    pool: list[tuple[str, Layer]],
) -> ModelSpec:
    """Return a residual network called ``name``: the convolution ``first``, with ``width`` output
    channels, the layers ``pool`` (none or a pooling layer), four stages of two blocks, and a linear
    layer."""
    layers: list[tuple[str, Layer]] = [("conv1", first), ("bn1", BatchNorm2d(width))]
    layers += [("relu", ReLU()), *pool]
    channels = width
    for stage in (1, 2, 3, 4):
        outputs = width * 2 ** (stage - 1)
        layers += residual_block(
            f"layer{stage}.0", channels, outputs, stride=1 if stage == 1 else 2
        )
        layers += residual_block(f"layer{stage}.1", outputs, outputs, stride=1)
        channels = outputs
    layers += [("avgpool", GlobalAvgPool2d()), ("fc", Linear(channels, classes))]
    return ModelSpec(name, shape, tuple(layers))


def residual_block(name: str, inputs: int, outputs: int, stride: int) -> list[tuple[str, Layer]]:
    """Return the layers of a block, each named ``name`` and a dot before its own name: two 3×3
    convolutions and a shortcut, with a projection where the shape changes."""
    layers: list[tuple[str, Layer]] = [
        ("branch", Branch()),
        ("conv1", Conv2d(inputs, outputs, 3, padding=1, bias=False, stride=stride)),
        ("bn1", BatchNorm2d(outputs)),
        ("relu1", ReLU()),
        ("conv2", Conv2d(outputs, outputs, 3, padding=1, bias=False)),
        ("bn2", BatchNorm2d(outputs)),
    ]
    if stride > 1 or inputs != outputs:
        layers += [
            ("swap", Swap()),
            ("downsample.0", Conv2d(inputs, outputs, 1, bias=False, stride=stride)),
            ("downsample.1", BatchNorm2d(outputs)),
        ]
    layers += [("merge", Merge()), ("relu", ReLU())]
    return [(f"{name}.{part}", layer) for part, layer in layers]


#: Image models made from an image's shape (any size and number of channels), the number of classes
#: and a width.
RESNETS = {make.__name__: make for make in (resnet18, resnet18_cifar)}
