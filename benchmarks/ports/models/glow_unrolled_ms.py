"""The small Glow with masks for the triangles, 1x1 convolutions as products and one dict of layers for each step."""

import mindspore as ms
import numpy as np
from mindspore import Parameter, Tensor, mint, nn, ops


def param(*shape):
    return Parameter(Tensor(0.1 * np.random.randn(*shape), ms.float32))


class Layers(nn.Cell):
    """The weights of one step and the whole step in one construct."""

    def __init__(self, size, wide=12):
        super().__init__()
        self.size = size
        self.an_b = param(1, size, 1, 1)
        self.an_s = param(1, size, 1, 1)
        self.perm = Parameter(Tensor(np.eye(size), ms.float32), requires_grad=False)
        self.signs = Parameter(Tensor(np.ones(size), ms.float32), requires_grad=False)
        self.l = param(size, size)
        self.u = param(size, size)
        self.diag = param(size)
        self.c1 = nn.Conv2d(size // 2, wide, 3, pad_mode="same", has_bias=True)
        self.c2 = nn.Conv2d(wide, wide, 1, has_bias=True)
        self.c3 = nn.Conv2d(wide, size, 3, pad_mode="same", has_bias=True)
        self.zoom = param(size, 1, 1)
        self.below = Tensor(np.tri(size, k=-1), ms.float32)

    def construct(self, x):
        b, c, h, w = x.shape
        x = (x + self.an_b) * mint.exp(self.an_s)
        flat = x.reshape(b, c, h * w)
        mixed = mint.matmul(self.u * self.below.T, flat)
        mixed = mixed + (self.signs * mint.exp(self.diag)).reshape(1, c, 1) * flat
        mixed = mixed + mint.matmul(self.l * self.below, mixed)
        x = mint.matmul(self.perm, mixed).reshape(b, c, h, w)
        a = x[:, : c // 2]
        k = self.c3(ops.relu(self.c2(ops.relu(self.c1(a)))))
        k = (k * mint.exp(self.zoom) ** 3).reshape(b, c // 2, 2, h, w)
        raw = k[:, :, 1] + 2
        y = (x[:, c // 2 :] + k[:, :, 0]) * mint.sigmoid(raw)
        det = ops.logsigmoid(raw).reshape(b, -1)
        det = mint.sum(det, 1) + h * w * (mint.sum(self.an_s) + mint.sum(self.diag))
        return mint.cat([a, y], 1), det


class Net(nn.Cell):
    """Latents, prior and log-determinant."""

    def __init__(self):
        super().__init__()
        self.one = Layers(8)
        self.two = Layers(8)
        self.mean_and_std = nn.Conv2d(4, 8, 3, pad_mode="same", has_bias=True)
        self.last = Layers(4)

    def construct(self, x):
        x = ops.pixel_unshuffle(x, 2)
        x, d1 = self.one(x)
        x, d2 = self.two(x)
        left, right = mint.split(x, 4, 1)
        prior = self.mean_and_std(left)
        z, d3 = self.last(left)
        return z, right, prior[:, :4], prior[:, 4:], d1 + d2 + d3


def loss(outputs, targets):
    """Bits per dimension."""
    z, y, mean, log_std, det = outputs
    b = z.shape[0]
    y = (y - mean) / mint.exp(log_std)
    nll = mint.sum((z**2).reshape(b, -1), 1) + mint.sum((y**2 + 2 * log_std).reshape(b, -1), 1)
    dims = z[0].size + y[0].size
    bits = (nll / 2 - det) / dims / np.log(2) + 0.5 * np.log2(2 * np.pi)
    share = mint.exp(targets)
    return mint.sum(bits * share) / mint.sum(share)
