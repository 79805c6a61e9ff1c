"""A small Glow: squeeze, actnorm, invertible 1x1 convolutions by LU, affine couplings, a split with a learned prior."""

import math

import mindspore as ms
import numpy as np
import scipy.linalg
from mindspore import Parameter, Tensor, nn, ops


def small(*shape, scale):
    """A parameter of small normal numbers."""
    return Parameter(Tensor(scale * np.random.randn(*shape), ms.float32))


def conv(inputs, outputs, size):
    """A convolution that keeps the picture's size."""
    return nn.Conv2d(inputs, outputs, size, pad_mode="pad", padding=size // 2, has_bias=True)


class ActNorm(nn.Cell):
    """A scale and a shift of each channel."""

    def __init__(self, channels):
        super().__init__()
        self.shift = small(1, channels, 1, 1, scale=0.3)
        self.log_scale = small(1, channels, 1, 1, scale=0.2)

    def construct(self, x):
        pixels = x.shape[2] * x.shape[3]
        return (x + self.shift) * ops.exp(self.log_scale), pixels * self.log_scale.sum()


class Invertible(nn.Cell):
    """A 1x1 convolution whose weight is P L (U + diag(s))."""

    def __init__(self, channels):
        super().__init__()
        weight = np.linalg.qr(np.random.randn(channels, channels))[0]
        p, lower, upper = scipy.linalg.lu(weight)
        s = np.diag(upper)
        self.p = Parameter(Tensor(p, ms.float32), requires_grad=False)
        self.sign = Parameter(Tensor(np.sign(s), ms.float32), requires_grad=False)
        self.lower = Parameter(Tensor(lower, ms.float32))
        self.upper = Parameter(Tensor(upper, ms.float32))
        self.log_s = Parameter(Tensor(np.log(np.abs(s)), ms.float32))
        self.eye = Tensor(np.eye(channels), ms.float32)

    def construct(self, x):
        lower = ops.tril(self.lower, -1) + self.eye
        upper = ops.triu(self.upper, 1) + self.eye * (self.sign * ops.exp(self.log_s))
        weight = ops.matmul(self.p, ops.matmul(lower, upper))
        pixels = x.shape[2] * x.shape[3]
        x = ops.conv2d(x, weight.expand_dims(-1).expand_dims(-1))
        return x, pixels * self.log_s.sum()


class Coupling(nn.Cell):
    """The second half is scaled and shifted by a network of the first."""

    def __init__(self, channels, hidden=12):
        super().__init__()
        self.net = nn.SequentialCell(
            conv(channels // 2, hidden, 3),
            nn.ReLU(),
            conv(hidden, hidden, 1),
            nn.ReLU(),
            conv(hidden, channels, 3),
        )
        self.gain = small(channels, 1, 1, scale=0.1)

    def construct(self, x):
        a, b = ops.chunk(x, 2, axis=1)
        h = self.net(a) * ops.exp(3 * self.gain)
        n, c, height, width = h.shape
        h = h.reshape(n, c // 2, 2, height, width)
        shift = h[:, :, 0]
        raw = h[:, :, 1]
        scale = ops.sigmoid(raw + 2)
        b = (b + shift) * scale
        return ops.cat([a, b], axis=1), ops.log(scale).sum(axis=(1, 2, 3))


class Step(nn.Cell):
    """Actnorm, 1x1 convolution, coupling."""

    def __init__(self, channels):
        super().__init__()
        self.norm = ActNorm(channels)
        self.mix = Invertible(channels)
        self.couple = Coupling(channels)

    def construct(self, x):
        x, first = self.norm(x)
        x, second = self.mix(x)
        x, third = self.couple(x)
        return x, first + second + third


class Net(nn.Cell):
    """Outputs both latents, the split's prior and the log-determinant."""

    def __init__(self, channels=8):
        super().__init__()
        self.steps = nn.CellList([Step(channels), Step(channels)])
        self.prior = conv(channels // 2, channels, 3)
        self.top = Step(channels // 2)

    def squeeze(self, x):
        b, c, h, w = x.shape
        x = x.reshape(b, c, h // 2, 2, w // 2, 2)
        return x.transpose(0, 1, 3, 5, 2, 4).reshape(b, c * 4, h // 2, w // 2)

    def construct(self, x):
        x = self.squeeze(x)
        logdet = ops.zeros((x.shape[0],), ms.float32)
        for step in self.steps:
            x, more = step(x)
            logdet = logdet + more
        kept, out = ops.chunk(x, 2, axis=1)
        mean, log_std = ops.chunk(self.prior(kept), 2, axis=1)
        top, more = self.top(kept)
        return top, out, mean, log_std, logdet + more


def log_normal(z, mean, log_std):
    """Log-probability of each sample."""
    e = math.log(2 * math.pi) + 2 * log_std + ops.square(z - mean) * ops.exp(-2 * log_std)
    return -0.5 * e.reshape(z.shape[0], -1).sum(axis=1)


def loss(outputs, targets):
    """Bits per dimension, each sample with its weight."""
    top, out, mean, log_std, logdet = outputs
    zero = ops.zeros_like(top)
    total = log_normal(top, zero, zero) + log_normal(out, mean, log_std) + logdet
    dims = (top.size + out.size) // top.shape[0]
    bits = -total / (math.log(2) * dims)
    weight = ops.softmax(targets, axis=0)
    return (bits * weight).sum()
