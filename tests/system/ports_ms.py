"""Correct and wrong ports of ``ports_torch.py``."""

from __future__ import annotations

import mindspore as ms
from mindspore import nn, ops


class Mixed(nn.Cell):
    eps, tanh, stride = 1e-5, False, 2

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.SequentialCell(
            nn.Conv2d(1, 4, 3, pad_mode="pad", padding=1, has_bias=True),
            nn.BatchNorm2d(4, momentum=0.9),
            nn.ReLU(),
            nn.MaxPool2d(2, self.stride),
        )
        self.embed = nn.Embedding(10, 6)
        self.lstm = nn.LSTM(6, 5, batch_first=True)
        self.norm = nn.LayerNorm((21,), epsilon=self.eps)
        self.act = nn.GELU(self.tanh)
        self.head = nn.Dense(21, 3)

    def construct(self, image, tokens):
        a = self.conv(image).reshape(image.shape[0], -1)
        b, _ = self.lstm(self.embed(tokens))
        return self.head(self.act(self.norm(ops.cat([a, b[:, -1]], 1))))


class Eps(Mixed):
    """The default epsilon of `nn.LayerNorm`."""

    eps = 1e-7


class Tanh(Mixed):
    """The default approximation of `nn.GELU`."""

    tanh = True


class Stride(Mixed):
    """The default stride of `nn.MaxPool2d`."""

    stride = 1


class Image(nn.Cell):
    bias, stride, anew = True, 2, True

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(1, 4, 3, pad_mode="pad", padding=1, has_bias=self.bias)
        self.up = nn.Upsample(scale_factor=2.0, recompute_scale_factor=self.anew)
        self.fc = nn.Dense(4, 3)

    def construct(self, x):
        y = ops.avg_pool2d(self.up(self.conv(x)), 2, self.stride)
        return self.fc(ops.tanh(y).mean((2, 3)))


class NoBias(Image):
    """The default of `nn.Conv2d`: no bias."""

    bias = False


class PoolStride(Image):
    """The default stride of `ops.avg_pool2d`."""

    stride = 1


class Factor(Image):
    """Raises, as `nn.Upsample` does unless it may recompute the factor."""

    anew = None


class Small(nn.Cell):
    def __init__(self, drop: float = 0.0) -> None:
        super().__init__()
        self.a, self.drop, self.b = nn.Dense(4, 8), nn.Dropout(p=drop), nn.Dense(8, 2)

    def construct(self, x):
        return self.b(self.drop(ops.tanh(self.a(x))))


class Root(Small):
    """NaN wherever the hidden value is below zero."""

    def construct(self, x):
        return self.b(ops.sqrt(self.a(x)))


def dropping() -> nn.Cell:
    return Small(0.5)


def dropping_more() -> nn.Cell:
    return Small(0.7)


class Attentive(nn.Cell):
    def __init__(self):
        super().__init__()
        self.q, self.k, self.v = nn.Dense(16, 16), nn.Dense(16, 16), nn.Dense(16, 16)
        self.out, self.fc, self.drop = nn.Dense(16, 16), nn.Dense(16, 5), nn.Dropout(p=0.1)

    def construct(self, x):
        n, length, _ = x.shape

        def heads(y):
            return y.reshape(n, length, 4, 4).transpose(0, 2, 1, 3)

        scores = ops.matmul(heads(self.q(x)), heads(self.k(x)).transpose(0, 1, 3, 2)) / 2.0
        y = ops.matmul(self.drop(ops.softmax(scores, -1)), heads(self.v(x)))
        return self.fc(self.out(y.transpose(0, 2, 1, 3).reshape(n, length, 16)) + x)


class Gated(nn.Cell):
    def __init__(self):
        super().__init__()
        self.w1, self.w3 = nn.Dense(16, 32, has_bias=False), nn.Dense(16, 32, has_bias=False)
        self.w2 = nn.Dense(32, 5, has_bias=False)

    def construct(self, x):
        return self.w2(self.w1(x) * ops.silu(self.w3(x)))


class Branching(Small):
    def construct(self, x):
        y = self.a(x)
        for row in range(len(x)):
            y = y * (2 if float(x[row].sum()) > 0 else 0.5)
        return self.b(ops.tanh(y))


class Noisy(Small):
    def construct(self, x):
        y = super().construct(x)
        return y + ops.standard_normal(y.shape)


def adam(parameters: list[ms.Parameter]) -> nn.Optimizer:
    """Adam with epsilon where MindSpore puts it: before the bias correction."""
    return nn.Adam(parameters, 1e-2, eps=1e-3)


def descent(parameters: list[ms.Parameter]):
    """Gradient descent as a function of the gradients, without `nn.Optimizer`."""

    def update(gradients):
        for parameter, gradient in zip(parameters, gradients, strict=True):
            parameter.set_data(parameter - 0.1 * gradient)

    return update


def squares(outputs, targets):
    return ((outputs - targets) ** 2).mean()
