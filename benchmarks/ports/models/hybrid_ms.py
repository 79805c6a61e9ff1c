"""Convolutions, squeeze-and-excitation, then a transformer; all in NHWC between convolutions."""

import math

from mindspore import nn, ops


def conv(cell, x):
    """A convolution of an NHWC tensor (the CPU has NCHW only)."""
    return cell(x.transpose(0, 3, 1, 2)).transpose(0, 2, 3, 1)


class BatchNorm(nn.BatchNorm2d):
    """Batch norm of an NHWC tensor."""

    def construct(self, x):
        x = super().construct(x.transpose(0, 3, 1, 2))
        return x.transpose(0, 2, 3, 1)


class SqueezeExcite(nn.Cell):
    """Channels scaled by a network of their means."""

    def __init__(self, channels, reduced):
        super().__init__()
        self.reduce = nn.Conv2d(channels, reduced, 1, has_bias=True)
        self.expand = nn.Conv2d(reduced, channels, 1, has_bias=True)

    def construct(self, x):
        s = x.mean(axis=(1, 2), keep_dims=True)
        s = ops.relu(conv(self.reduce, s))
        return x * ops.sigmoid(conv(self.expand, s))


class Transformer(nn.Cell):
    """Pre-norm attention and network over [B, N, C]."""

    def __init__(self, d, heads):
        super().__init__()
        self.heads = heads
        self.norm1 = nn.LayerNorm([d], epsilon=1e-5)
        self.qkv = nn.Dense(d, 3 * d, has_bias=False)
        self.proj = nn.Dense(d, d)
        self.norm2 = nn.LayerNorm([d], epsilon=1e-5)
        self.mlp = nn.SequentialCell(nn.Dense(d, 2 * d), nn.SiLU(), nn.Dense(2 * d, d))

    def construct(self, x):
        b, n, d = x.shape
        size = d // self.heads
        qkv = self.qkv(self.norm1(x))
        q, k, v = (
            a.reshape(b, n, self.heads, size).transpose(0, 2, 1, 3)
            for a in ops.split(qkv, d, axis=-1)
        )
        scores = ops.matmul(q, k.transpose(0, 1, 3, 2)) / math.sqrt(size)
        y = ops.matmul(ops.softmax(scores, axis=-1), v)
        x = x + self.proj(y.transpose(0, 2, 1, 3).reshape(b, n, d))
        return x + self.mlp(self.norm2(x))


class Net(nn.Cell):
    """Input [B, 3, 10, 10]."""

    def __init__(self, c=8, heads=2, classes=4):
        super().__init__()
        self.stem = nn.Conv2d(3, c, 3, stride=2, pad_mode="pad", padding=1)
        self.bn1 = BatchNorm(c, eps=1e-5, momentum=0.9)
        self.dw = nn.Conv2d(c, c, 3, pad_mode="pad", padding=1, group=c)
        self.bn2 = BatchNorm(c, eps=1e-5)
        self.se = SqueezeExcite(c, 4)
        self.transformer = Transformer(c, heads)
        self.fuse = nn.Conv2d(2 * c, c, 1, has_bias=True)
        self.head = nn.Dense(c, classes)

    def construct(self, x):
        x = x.transpose(0, 2, 3, 1)
        x = ops.silu(self.bn1(conv(self.stem, x)))
        x = ops.silu(self.bn2(conv(self.dw, x)))
        x = self.se(x)
        b, h, w, c = x.shape
        y = self.transformer(x.reshape(b, h * w, c)).reshape(b, h, w, c)
        x = ops.silu(conv(self.fuse, ops.concat((x, y), axis=-1)))
        return self.head(x.mean(axis=(1, 2)))


class RMSprop(nn.Optimizer):
    """RMSprop as PyTorch computes it: epsilon outside the root, averages from zero."""

    def __init__(self, parameters, lr, alpha, eps, momentum):
        super().__init__(lr, parameters)
        self.lr, self.alpha, self.eps, self.momentum = lr, alpha, eps, momentum
        self.square_avg = self.parameters.clone(prefix="square_avg", init="zeros")
        self.buffer = self.parameters.clone(prefix="buffer", init="zeros")

    def construct(self, grads):
        for p, g, s, b in zip(self.parameters, grads, self.square_avg, self.buffer):
            ops.assign(s, self.alpha * s + (1 - self.alpha) * g * g)
            step = g / (ops.sqrt(s) + self.eps)
            ops.assign(b, self.momentum * b + step)
            ops.assign(p, p - self.lr * b)
        return True


def optimizer(parameters):
    """RMSprop with momentum, as MobileNet is trained."""
    return RMSprop(parameters, lr=0.01, alpha=0.9, eps=1e-3, momentum=0.9)
