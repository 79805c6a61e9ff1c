"""Super-resolution with shuffling, enlarging and slopes written out, and an Adam of one vector."""

import mindspore as ms
import numpy as np
from mindspore import Parameter, ParameterTuple, Tensor, mint, nn, ops


def mirrored(x):
    x = mint.cat([x[:, :, 1:2], x, x[:, :, -2:-1]], dim=2)
    return mint.cat([x[..., 1:2], x, x[..., -2:-1]], dim=3)


def linear_table(n):
    """Rows for the pixels of twice as many, three quarters of the near and one of the far."""
    table = np.zeros((2 * n, n), np.float32)
    for i in range(2 * n):
        near = i // 2
        far = min(max(near + (1 if i % 2 else -1), 0), n - 1)
        table[i, near] += 0.75
        table[i, far] += 0.25
    return Tensor(table)


class Slopes(nn.Cell):
    def __init__(self, c):
        super().__init__()
        self.slope = Parameter(Tensor(np.full(c, 0.2), ms.float32), name="slope")

    def construct(self, x):
        zero = mint.zeros(x.shape)
        return mint.maximum(x, zero) + self.slope[:, None, None] * mint.minimum(x, zero)


class Net(nn.Cell):
    def __init__(self, c=12):
        super().__init__()
        self.first = nn.Conv2d(3, c, 3, pad_mode="valid", has_bias=True)
        cells = []
        for _ in range(2):
            cells.append(nn.Conv2d(c, c, 3, pad_mode="valid", has_bias=True))
            cells.append(Slopes(c))
            cells.append(nn.Conv2d(c, c, 3, pad_mode="valid", has_bias=True))
        self.middle = nn.CellList(cells)
        self.join = nn.Conv2d(c, c, 1, has_bias=True)
        self.expand = nn.Conv2d(c, 4 * c, 3, pad_mode="valid", has_bias=True)
        self.bend = Slopes(c)
        self.final = nn.Conv2d(c, 3, 3, pad_mode="valid", has_bias=True)
        self.center = Tensor([[[0.45]], [[0.44]], [[0.40]]], ms.float32)
        self.width = Tensor([[[0.27]], [[0.26]], [[0.29]]], ms.float32)
        self.table = linear_table(8)

    def construct(self, image):
        x = (image - self.center) / self.width
        start = self.first(mirrored(x))
        h = start
        for i in (0, 3):
            y = self.middle[i + 1](self.middle[i](mirrored(h)))
            h = h + self.middle[i + 2](mirrored(y)) * 0.3
        h = mint.add(self.join(h), start)
        h = self.expand(mirrored(h))
        b, c, n, m = h.shape
        h = mint.permute(h.reshape(b, c // 4, 2, 2, n, m), (0, 1, 4, 2, 5, 3))
        h = self.bend(h.reshape(b, c // 4, 2 * n, 2 * m))
        large = mint.matmul(mint.matmul(self.table, image), self.table.T)
        return self.final(mirrored(h)) * self.width + large


def loss(outputs, targets):
    d = outputs - targets
    total = 0
    for error, weight in (
        (d, 1.0),
        (d[..., 1:] - d[..., :-1], 0.2),
        (d[:, :, 1:] - d[:, :, :-1], 0.2),
    ):
        total = total + weight * mint.mean(mint.sqrt(mint.square(error) + 0.0025))
    return total


class FlatAdam(nn.Cell):
    """All weights as one vector, with a rate for each number."""

    def __init__(self, parameters):
        super().__init__()
        self.weights = ParameterTuple(parameters)
        rates = [np.full(p.size, 1e-3 if p.name.startswith("final") else 1e-2) for p in parameters]
        self.rate = Tensor(np.concatenate(rates), ms.float32)
        self.sizes = [p.size for p in parameters]
        self.first = mint.zeros((sum(self.sizes),))
        self.second = mint.zeros((sum(self.sizes),))
        steps = np.arange(6)
        self.factors = 0.525 + 0.475 * np.cos(np.pi * steps / 6)
        self.done = 0

    def construct(self, gradients):
        g = mint.cat([g.reshape(-1) for g in gradients], dim=0)
        norm = mint.sqrt(mint.sum(g * g))
        g = g * 0.1 / mint.clamp(norm + 1e-6, min=0.1)
        factor = float(self.factors[self.done])
        self.done += 1
        self.first = self.first * 0.9 + g * 0.1
        self.second = self.second * 0.99 + mint.square(g) * 0.01
        root = mint.sqrt(self.second / (1 - 0.99**self.done)) + 1e-6
        change = self.rate * factor * self.first / (root * (1 - 0.9**self.done))
        for p, c in zip(self.weights, mint.split(change, self.sizes, dim=0)):
            ops.assign_sub(p, c.reshape(p.shape))
        return True


def optimizer(parameters):
    return FlatAdam(list(parameters))
