"""Super-resolution by two: residual blocks, pixel shuffle, and the enlarged image added."""

import math

import mindspore as ms
import numpy as np
from mindspore import Tensor, nn, ops


class Conv3(nn.Cell):
    """A convolution with the borders reflected."""

    def __init__(self, cin, cout):
        super().__init__()
        self.conv = nn.Conv2d(cin, cout, 3, pad_mode="valid", has_bias=True)

    def construct(self, x):
        return self.conv(ops.pad(x, (1, 1, 1, 1), mode="reflect"))


class Block(nn.Cell):
    """Two convolutions without norm, their result made smaller."""

    def __init__(self, c, scale=0.3):
        super().__init__()
        self.conv1 = Conv3(c, c)
        self.act = nn.PReLU(channel=c, w=0.2)
        self.conv2 = Conv3(c, c)
        self.scale = scale

    def construct(self, x):
        return x + self.scale * self.conv2(self.act(self.conv1(x)))


class Net(nn.Cell):
    """The enlarged image, in the colours' own range."""

    def __init__(self, c=12, blocks=2):
        super().__init__()
        self.mean = Tensor(np.array([0.45, 0.44, 0.40]).reshape(1, 3, 1, 1), ms.float32)
        self.std = Tensor(np.array([0.27, 0.26, 0.29]).reshape(1, 3, 1, 1), ms.float32)
        self.head = Conv3(3, c)
        self.blocks = nn.SequentialCell([Block(c) for _ in range(blocks)])
        self.fuse = nn.Conv2d(c, c, 1, has_bias=True)
        self.up = Conv3(c, 4 * c)
        self.act = nn.PReLU(channel=c, w=0.2)
        self.tail = Conv3(c, 3)

    def construct(self, x):
        x = (x - self.mean) / self.std
        shallow = self.head(x)
        deep = self.blocks(shallow)
        h = shallow + self.fuse(deep)
        h = ops.pixel_shuffle(self.up(h), 2)
        h = self.act(h)
        size = (2 * x.shape[2], 2 * x.shape[3])
        large = ops.interpolate(x, size=size, mode="bilinear", align_corners=False)
        return (self.tail(h) + large) * self.std + self.mean


def charbonnier(x, eps=0.05):
    return ops.sqrt(x * x + eps * eps).mean()


def loss(outputs, targets):
    """Charbonnier loss of the pixels and of their differences to the right and below."""
    d = outputs - targets
    right = d[:, :, :, 1:] - d[:, :, :, :-1]
    below = d[:, :, 1:, :] - d[:, :, :-1, :]
    return charbonnier(d) + 0.2 * (charbonnier(right) + charbonnier(below))


class Adam:
    """Adam with a cosine schedule and clipping by the norm of all gradients."""

    def __init__(self, parameters, rates, total=6, floor=0.05, clip=0.1):
        self.parameters = parameters
        self.rates = rates
        self.total, self.floor, self.clip = total, floor, clip
        self.b1, self.b2, self.eps = 0.9, 0.99, 1e-6
        self.m = [ops.zeros_like(p) for p in parameters]
        self.v = [ops.zeros_like(p) for p in parameters]
        self.t = 0

    def clipped(self, gradients):
        norm = ops.sqrt(sum(ops.square(g).sum() for g in gradients))
        scale = ops.minimum(self.clip / (norm + 1e-6), Tensor(1.0))
        return [g * scale for g in gradients]

    def __call__(self, gradients):
        gradients = self.clipped(gradients)
        share = 0.5 * (1 + math.cos(math.pi * self.t / self.total))
        factor = self.floor + (1 - self.floor) * share
        self.t += 1
        for i, (p, g) in enumerate(zip(self.parameters, gradients)):
            if self.rates[i] is None:
                continue
            self.m[i] = self.b1 * self.m[i] + (1 - self.b1) * g
            self.v[i] = self.b2 * self.v[i] + (1 - self.b2) * g * g
            m = self.m[i] / (1 - self.b1**self.t)
            v = self.v[i] / (1 - self.b2**self.t)
            p.set_data(p - self.rates[i] * factor * m / (ops.sqrt(v) + self.eps))


def rate_of(name):
    """The last convolution learns slowly."""
    if "tail" in name:
        return 0.001
    return 0.01


def optimizer(parameters):
    parameters = list(parameters)
    return Adam(parameters, [rate_of(p.name) for p in parameters])
