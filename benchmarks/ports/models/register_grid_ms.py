"""Registration with affine grids and grid sampling, two networks, flow channels last."""

import mindspore as ms
import numpy as np
from mindspore import Tensor, mint, nn, ops


def pixels(n, m):
    y, x = np.meshgrid(np.arange(n), np.arange(m), indexing="ij")
    return Tensor(np.stack([y, x], -1)[None], ms.float32)


def move(image, shift, base):
    """The shift has the axes image, row, column, direction; base holds the places of the pixels."""
    size = Tensor([image.shape[2] - 1, image.shape[3] - 1], ms.float32)
    place = (base + shift) * 2 / size - 1
    place = mint.flip(place, (3,))
    return ops.grid_sample(image, place, mode="bilinear", padding_mode="zeros", align_corners=True)


class Rigid(nn.Cell):
    """Six numbers from both images."""

    def __init__(self, c):
        super().__init__()
        self.layers = nn.SequentialCell(
            nn.Conv2d(2, c, 3, 2, "pad", 1, has_bias=True),
            nn.LeakyReLU(0.01),
            nn.Conv2d(c, 2 * c, 3, 2, "pad", 1, has_bias=True),
            nn.LeakyReLU(0.01),
        )
        self.numbers = nn.Dense(2 * c, 6)

    def construct(self, pair):
        x = self.layers(pair)
        x = mint.mean(x.reshape(x.shape[0], x.shape[1], -1), 2)
        return mint.tanh(self.numbers(x)).reshape(-1, 2, 3)


class Elastic(nn.Cell):
    """A velocity for every second pixel."""

    def __init__(self, c):
        super().__init__()
        self.layers = nn.SequentialCell(
            nn.Conv2d(2, c, 3, 2, "pad", 1, has_bias=True),
            nn.LeakyReLU(0.01),
            nn.Conv2d(c, c, 3, 1, "pad", 1, has_bias=True),
            nn.LeakyReLU(0.01),
            nn.Conv2d(c, 2, 3, 1, "pad", 1, has_bias=True),
        )

    def construct(self, pair):
        return self.layers(pair)


class Net(nn.Cell):
    def __init__(self, c=8):
        super().__init__()
        self.rigid = Rigid(c)
        self.elastic = Elastic(c)
        self.fine, self.coarse = pixels(16, 16), pixels(8, 8)
        self.eye = Tensor([[1, 0, 0], [0, 1, 0]], ms.float32)

    def construct(self, moving, fixed):
        theta = self.rigid(mint.cat([moving, fixed], dim=1)) * 0.3 + self.eye
        grid = ops.affine_grid(theta, moving.shape, align_corners=False)
        image = ops.grid_sample(moving, grid, padding_mode="border", align_corners=False)
        velocity = self.elastic(mint.cat([image, fixed], dim=1)) * 0.25
        for _ in range(2):
            velocity = velocity + move(velocity, mint.permute(velocity, (0, 2, 3, 1)), self.coarse)
        flow = ops.interpolate(velocity * 2, (16, 16), mode="bilinear", align_corners=True)
        return move(image, mint.permute(flow, (0, 2, 3, 1)), self.fine), flow


def loss(outputs, targets):
    image, flow = outputs
    stack = mint.cat([image, targets, image * image, targets * targets, image * targets], dim=1)
    stack = ops.pad(stack, (2, 2, 2, 2))
    total = 0
    for i in range(5):
        for j in range(5):
            total = total + stack[:, :, i : i + 16, j : j + 16]
    a, b, aa, bb, ab = mint.split(total / 25, 1, dim=1)
    quotient = mint.square(ab - a * b) / ((aa - a * a) * (bb - b * b) + 0.001)
    down = flow[:, :, 1:] - flow[:, :, :-1]
    right = flow[..., 1:] - flow[..., :-1]
    rough = mint.mean(down * down) + mint.mean(right * right)
    return 0.025 * rough - mint.mean(quotient)
