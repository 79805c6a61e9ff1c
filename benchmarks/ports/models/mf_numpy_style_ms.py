"""Matrix factorisation: whole tables multiplied, entries picked; momentum by hand."""

import mindspore as ms
import numpy as np
from mindspore import Parameter, Tensor, nn, ops


class Net(nn.Cell):
    """The full matrix of ratings, then the ones asked for."""

    def __init__(self, users=9, items=7, k=8):
        super().__init__()
        shapes = {"a": (users, k), "b": (items, k), "a0": (users, 1), "b0": (items, 1), "m": (1,)}
        for name, shape in shapes.items():
            setattr(self, name, Parameter(Tensor(np.ones(shape), ms.float32), name=name))

    def construct(self, users, items):
        full = ops.matmul(self.a, self.b.T) + self.a0 + self.b0.T + self.m
        size = (
            ops.square(self.a).sum(1, keepdims=True)
            + ops.square(self.b).sum(1)
            + ops.square(self.a0)
            + ops.square(self.b0).T
        )
        place = users * full.shape[1] + items
        return full.reshape(-1)[place], size.reshape(-1)[place]


def loss(outputs, ratings):
    """Sums divided by the count."""
    d = outputs[0] - ratings
    return ((d * d).sum() + 0.02 * outputs[1].sum()) / d.shape[0]


class Momentum(nn.Optimizer):
    """v = 0.9 v + g + decay p; p -= lr v."""

    def __init__(self, parameters, rate):
        super().__init__(rate, parameters)
        self.rate = rate
        self.speeds = [0.0 for _ in self.parameters]

    def construct(self, gradients):
        for i, (p, g) in enumerate(zip(self.parameters, gradients)):
            self.speeds[i] = 0.9 * self.speeds[i] + g + 1e-3 * p
            ops.assign_sub(p, self.rate * self.speeds[i])
        return True


def optimizer(parameters):
    """Rate 0.1."""
    return Momentum(parameters, 0.1)
