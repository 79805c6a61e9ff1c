"""Radiance field: plain parameters and matrix products, log-space transmittance."""

import math

import numpy as np
import mindspore as ms
from mindspore import Parameter, Tensor, nn, ops


class Affine(nn.Cell):
    """y = x w + b, the weight stored as (inputs, outputs)."""

    def __init__(self, n_in, n_out):
        super().__init__()
        limit = math.sqrt(2) * math.sqrt(6 / (n_in + n_out))
        bound = 1 / math.sqrt(n_in)
        self.w = Parameter(Tensor(np.random.uniform(-limit, limit, (n_in, n_out)), ms.float32), name="w")
        self.b = Parameter(Tensor(np.random.uniform(-bound, bound, (n_out,)), ms.float32), name="b")

    def construct(self, x):
        return ops.matmul(x, self.w) + self.b


class Fourier(nn.Cell):
    """Features ordered by frequency; the cosine is a shifted sine."""

    def __init__(self, count):
        super().__init__()
        frequency = np.exp2(np.arange(count))
        self.frequency = Tensor(np.repeat(frequency, 2).reshape(-1, 1), ms.float32)
        self.offset = Tensor(np.tile([0.0, np.pi / 2], count).reshape(-1, 1), ms.float32)

    def construct(self, x):
        waves = ops.sin(x.expand_dims(-2) * self.frequency + self.offset)
        return ops.cat((x, waves.reshape(x.shape[:-1] + (-1,))), -1)


class Net(nn.Cell):
    """Outputs colour, depth and opacity of each ray, and the densities of its samples."""

    def __init__(self, width=16, samples=8, bound=2.0):
        super().__init__()
        self.codes = Parameter(Tensor(np.random.randn(5, 4), ms.float32), name="codes")
        self.encode_point = Fourier(6)
        self.encode_view = Fourier(2)
        self.base0 = Affine(39, width)
        self.base1 = Affine(width, width)
        self.base2 = Affine(width, width)
        self.base3 = Affine(39 + width, width)
        self.density = Affine(width, 1)
        self.feature = Affine(width, width)
        self.view = Affine(width + 15 + 4, width // 2)
        self.colour = Affine(width // 2, 3)
        disparity = np.linspace(1 / 0.5, 1 / 4.0, samples + 1)
        borders = 1.0 / disparity
        self.step = Tensor(np.diff(borders), ms.float32)
        self.z = Tensor((borders[1:] + borders[:-1]) / 2, ms.float32)
        self.bound = bound

    def construct(self, origin, direction, image):
        rays, samples = origin.shape[0], self.z.shape[0]
        length = ops.sqrt((direction * direction).sum(axis=-1, keepdims=True))
        p = (origin[:, None] + direction[:, None] * self.z[:, None]).reshape(rays * samples, 3)

        e = self.encode_point(p)
        h = ops.relu(self.base0(e))
        h = ops.relu(self.base1(h))
        h = ops.relu(self.base2(h))
        h = ops.relu(self.base3(ops.cat((e, h), -1)))
        raw = self.density(h)[:, 0] - 1
        sigma = ops.maximum(raw, Tensor(0.0, ms.float32)) + ops.log(1 + ops.exp(-ops.abs(raw)))
        sigma = sigma * (ops.abs(p).max(axis=-1) <= self.bound).astype(ms.float32)

        per_ray = ops.cat((self.encode_view(direction / length), ops.gather(self.codes, image, 0)), -1)
        per_sample = ops.repeat_interleave(per_ray, samples, 0)
        c = ops.relu(self.view(ops.cat((self.feature(h), per_sample), -1)))
        c = 1 / (1 + ops.exp(-self.colour(c)))

        sigma = sigma.reshape(rays, samples)
        thickness = sigma * (self.step * length)
        before = ops.cumsum(thickness, -1) - thickness
        weight = ops.exp(-before) * (1 - ops.exp(-thickness))
        opacity = weight.sum(axis=1)
        mixed = ops.bmm(weight[:, None], c.reshape(rays, samples, 3))[:, 0]
        return mixed + 1 - opacity[:, None], ops.matmul(weight, self.z), opacity, sigma


def loss(outputs, targets):
    """Colour error and density prior."""
    rgb, sigma = outputs[0], outputs[3]
    return ops.square(rgb - targets).mean() + 0.1 * ops.log1p(2 * ops.square(sigma)).mean()
