"""Cells of deeper image networks, with PyTorch's names and meaning."""

from __future__ import annotations

import mindspore as ms
from mindspore import nn, ops

from dualml_ms.algorithms.model.modules import zero_parameter


class BatchNorm2d(nn.Cell):
    """`nn.BatchNorm2d` with the names ``weight``, ``bias``, ``running_mean``, ``running_var``.

    ``momentum`` is the weight of the batch, as for the kernel; for `nn.BatchNorm2d` it is that of
    the past, 1 − momentum. Both move the running variance towards the unbiased one.
    """

    def __init__(self, channels: int, eps: float, momentum: float) -> None:
        super().__init__()
        self.weight, self.bias = (
            zero_parameter("weight", channels),
            zero_parameter("bias", channels),
        )
        self.running_mean = zero_parameter("running_mean", channels)
        self.running_var = zero_parameter("running_var", channels)
        for statistic in (self.running_mean, self.running_var):
            statistic.requires_grad = False
        self.train_norm = ops.BatchNorm(is_training=True, epsilon=eps, momentum=momentum)
        self.eval_norm = ops.BatchNorm(is_training=False, epsilon=eps, momentum=momentum)

    def construct(self, x, learning):
        """Normalize (B, C, H, W), with the statistics of the batch if ``learning``, which also
        moves the running ones in place, else with the running ones."""
        weight, bias = self.weight.astype(ms.float32), self.bias.astype(ms.float32)
        if learning:
            return self.train_norm(x, weight, bias, self.running_mean, self.running_var)[0]
        return self.eval_norm(x, weight, bias, self.running_mean, self.running_var)[0]


class GlobalAvgPool2d(nn.Cell):
    """Global average pooling, (B, C, H, W) → (B, C)."""

    def construct(self, x):
        """Return the mean of ``x`` over height and width, (B, C, H, W) → (B, C)."""
        return x.mean((2, 3))
