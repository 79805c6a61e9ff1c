"""The graph convolutions as messages: scaled before and after a sum over neighbours."""

import mindspore as ms
import numpy as np
from mindspore import Tensor, mint, nn, ops


class Transform(nn.Cell):
    """A product with a weight kept as [inputs, outputs]."""

    def __init__(self, inputs, outputs, has_bias):
        super().__init__()
        weight = np.random.normal(size=(inputs, outputs)).astype(np.float32)
        self.kernel = ms.Parameter(Tensor(weight))
        self.offset = ms.Parameter(ops.zeros(outputs, ms.float32)) if has_bias else 0.0

    def construct(self, x):
        return mint.matmul(x, self.kernel) + self.offset


class Net(nn.Cell):
    """MindSpore's own batch norm; no normalised matrix is formed."""

    def __init__(self, features=6, hidden=12, classes=4):
        super().__init__()
        self.first = Transform(features, hidden, has_bias=False)
        self.norm = nn.BatchNorm1d(hidden, eps=1e-5, momentum=0.9)
        self.second = Transform(hidden, hidden, has_bias=True)
        self.out = nn.Dense(hidden, classes)

    @staticmethod
    def spread(x, links, degree):
        """Each node's own share and its neighbours'."""
        x = x / mint.sqrt(degree)
        return (x + mint.matmul(links, x)) / mint.sqrt(degree)

    def construct(self, x, adjacency):
        linked = ops.logical_or(adjacency > 0, adjacency.swapaxes(0, 1) > 0)
        others = Tensor(~np.eye(x.shape[0], dtype=bool))
        links = ops.logical_and(linked, others).astype(ms.float32)
        degree = links.sum(1, keepdims=True) + 1
        h = ops.relu(self.norm(self.first(self.spread(x, links, degree))))
        return self.out(h + ops.relu(self.second(self.spread(h, links, degree))))
