"""The text classifier with windows multiplied as rows, rectified after the pooling."""

import numpy as np
from mindspore import Parameter, Tensor, mint, nn, ops


def random(*shape):
    return Tensor(np.random.uniform(-0.2, 0.2, shape).astype(np.float32))


class Net(nn.Cell):
    """Parameters and products, no layers besides the last."""

    def __init__(self, words=16, d=8, maps=6, classes=3):
        super().__init__()
        self.table = Parameter(random(words, d), name="table")
        self.w2 = Parameter(random(maps, d, 2), name="w2")
        self.b2 = Parameter(random(maps), name="b2")
        self.w3 = Parameter(random(maps, d, 3), name="w3")
        self.b3 = Parameter(random(maps), name="b3")
        self.w4 = Parameter(random(maps, d, 4), name="w4")
        self.b4 = Parameter(random(maps), name="b4")
        self.transform1 = mint.nn.Linear(3 * maps, 3 * maps)
        self.carry1 = mint.nn.Linear(3 * maps, 3 * maps)
        self.transform2 = mint.nn.Linear(3 * maps, 3 * maps)
        self.carry2 = mint.nn.Linear(3 * maps, 3 * maps)
        self.last = mint.nn.Linear(3 * maps, classes)

    def pooled(self, x, words, weight, bias):
        width = weight.shape[2]
        n = x.shape[1] - width + 1
        rows = ops.stack([x[:, i : i + n] for i in range(width)], axis=-1)
        y = ops.matmul(rows.reshape(x.shape[0], n, -1), weight.reshape(weight.shape[0], -1).T)
        y = ops.where((words[:, :n] > 0).expand_dims(-1), y, -1e4)
        return ops.relu(ops.amax(y, 1) + bias)

    def construct(self, words):
        hot = ops.one_hot(words.int(), self.table.shape[0], Tensor(1.0), Tensor(0.0))
        x = ops.matmul(hot, self.table) * (words > 0).float()[:, :, None]
        parts = [
            self.pooled(x, words, self.w2, self.b2),
            self.pooled(x, words, self.w3, self.b3),
            self.pooled(x, words, self.w4, self.b4),
        ]
        y = ops.concat(parts, axis=-1)
        for transform, carry in ((self.transform1, self.carry1), (self.transform2, self.carry2)):
            y = y + mint.sigmoid(carry(y)) * (ops.relu(transform(y)) - y)
        return self.last(y)


class Shortened(nn.Optimizer):
    """The library's Adadelta, then the rows shortened."""

    def __init__(self, parameters, longest):
        super().__init__(1.0, parameters)
        self.rule = ops.ApplyAdadelta()
        self.longest = longest
        self.first = self._parameters.clone(prefix="first", init="zeros")
        self.second = self._parameters.clone(prefix="second", init="zeros")

    def construct(self, gradients):
        for i, p in enumerate(self._parameters):
            self.rule(p, self.first[i], self.second[i], 1.0, 0.9, 1e-4, gradients[i])
            if p.ndim == 2:
                square = (p * p).sum(axis=1, keepdims=True)
                factor = self.longest / ops.sqrt(ops.maximum(square, 1e-14))
                ops.assign(p, ops.where(square > self.longest**2, p * factor, p))
        return True


def optimizer(parameters):
    return Shortened(parameters, 2.5)
