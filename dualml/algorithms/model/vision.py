"""Layers of deeper image networks: batch normalisation and global average pooling."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from dualml.algorithms.model.base import DtypePolicy, Layer, Shape, check_input_shape
from dualml.algorithms.model.layers import LAYERS


@dataclass(frozen=True)
class BatchNorm2d(Layer):
    """(x − mean) / √(variance + eps) · w + b for each channel of an image (C, H, W).

    In training, mean and biased variance are those of the batch, over samples and pixels, and the
    running ones move towards them: ``running ← (1 − momentum) · running + momentum · batch``, with
    the unbiased variance. In evaluation they are the running ones.

    ``weight`` and ``bias`` (channels,); the buffers ``running_mean`` and ``running_var``
    (channels,). Source: Ioffe and Szegedy 2015, "Batch Normalization: Accelerating Deep Network
    Training by Reducing Internal Covariate Shift", algorithms 1 and 2.
    """

    dtype_policy: ClassVar[DtypePolicy] = DtypePolicy.SINGLE

    channels: int
    eps: float = 1e-5
    momentum: float = 0.1

    def parameters(self) -> dict[str, Shape]:
        """Return the shapes of ``weight`` and ``bias``, (channels,) each."""
        return {"weight": (self.channels,), "bias": (self.channels,)}

    def buffers(self) -> dict[str, Shape]:
        """Return the shapes of ``running_mean`` and ``running_var``, (channels,) each."""
        return {"running_mean": (self.channels,), "running_var": (self.channels,)}

    def output_shape(self, shape: Shape) -> Shape:
        """Return ``shape`` unchanged; raise `UserError` unless it is (channels, H, W)."""
        fits = len(shape) == 3 and shape[0] == self.channels
        check_input_shape(fits, f"BatchNorm2d takes ({self.channels}, H, W)", shape)
        return shape


@dataclass(frozen=True)
class GlobalAvgPool2d(Layer):
    """The mean of every channel: (C, H, W) → (C,); `torch.nn.AdaptiveAvgPool2d(1)`, flattened.

    Source: Lin, Chen and Yan 2014, "Network In Network", sec. 3.2.
    """

    dtype_policy: ClassVar[DtypePolicy] = DtypePolicy.SINGLE

    def output_shape(self, shape: Shape) -> Shape:
        """Return (C,) for an image (C, H, W); raise `UserError` for another shape."""
        check_input_shape(len(shape) == 3, "GlobalAvgPool2d takes (C, H, W)", shape)
        return shape[:1]


LAYERS.update({kind.__name__: kind for kind in (BatchNorm2d, GlobalAvgPool2d)})
