"""Two towers in one cell: one table with offsets for all fields, the softmax written out."""

import mindspore as ms
import numpy as np
from mindspore import Parameter, Tensor, mint, nn, ops

SIZES = np.array([5, 9, 4])
START = np.concatenate([[0], np.cumsum(SIZES)[:-1]])


def leaky(x):
    """Leaky ReLU with slope 0.01."""
    return mint.where(x > 0, x, 0.01 * x)


class Net(nn.Cell):
    """Scores and equal items."""

    def __init__(self, width=8):
        super().__init__()
        self.catalogue = Parameter(Tensor(np.random.randn(12, width), ms.float32))
        self.table = Parameter(Tensor(np.random.randn(SIZES.sum(), width), ms.float32))
        self.dense_1 = nn.Dense(4, 16)
        self.dense_2 = nn.Dense(16, width)
        self.query_1 = nn.Dense(width + 10, 24)
        self.query_2 = nn.Dense(24, width)
        self.side = nn.Dense(3, 6)
        self.key_1 = nn.Dense(width + 6, 24)
        self.key_2 = nn.Dense(24, width)
        self.temperature = Parameter(Tensor(1.6, ms.float32))
        self.sizes = Tensor(SIZES[None], ms.int32)
        self.start = Tensor(START[None], ms.int32)

    def query(self, dense, ids, history):
        x = mint.where(dense > 0, mint.log(1 + mint.abs(dense)), -mint.log(1 + mint.abs(dense)))
        x = leaky(self.dense_2(leaky(self.dense_1(x))))
        ids = ids.astype(ms.int32) % self.sizes
        rows = self.table[ids + self.start]
        rows = mint.where((ids == 0)[:, :, None], ops.stop_gradient(rows), rows)
        hot = ops.one_hot(history.astype(ms.int32), 12, Tensor(1.0, ms.float32), Tensor(0.0, ms.float32))
        count = mint.sum(hot, 1)[:, 1:]
        liked = mint.matmul(count, self.catalogue[1:]) / mint.sum(count, 1, keepdim=True).clip(1, None)
        z = mint.cat([x[:, None], rows, liked[:, None]], 1)
        pairs = []
        for i in range(1, 5):
            for j in range(i):
                pairs.append(mint.sum(z[:, i] * z[:, j], 1, keepdim=True))
        q = self.query_2(leaky(self.query_1(mint.cat([x] + pairs, 1))))
        return q / mint.sqrt(mint.sum(q * q, 1, keepdim=True))

    def key(self, item, features):
        row = ops.gather(self.catalogue, item, 0)
        row = mint.where((item == 0)[:, None], ops.stop_gradient(row), row)
        k = mint.cat([row, mint.tanh(self.side(features))], 1)
        k = self.key_2(leaky(self.key_1(k)))
        return k / mint.sqrt(mint.sum(k * k, 1, keepdim=True))

    def construct(self, dense, ids, history, item, features):
        scores = mint.matmul(self.query(dense, ids, history), self.key(item, features).T)
        same = (item[:, None] == item[None]).astype(ms.float32)
        return scores * mint.exp(self.temperature).clip(None, 100.0), same


def loss(outputs, targets):
    """Mean of log-sum-exp less the diagonal."""
    scores, same = outputs
    eye = Tensor(np.eye(scores.shape[0]), ms.float32)
    x = scores - targets
    x = mint.where(same - eye > 0.5, Tensor(-1e4, ms.float32), x)
    top = ops.stop_gradient(ops.amax(x, 1, keepdims=True))
    total = mint.log(mint.sum(mint.exp(x - top), 1)) + top[:, 0]
    return mint.mean(total - mint.sum(x * eye, 1))
