"""Two towers for retrieval: DLRM-like user tower, item tower, in-batch softmax with a learned temperature."""

import math

import mindspore as ms
import numpy as np
from mindspore import Parameter, Tensor, nn, ops

FIELDS = (5, 9, 4)
ITEMS = 12


class Table(nn.Cell):
    """Rows of an embedding; number 0 is padding and does not learn."""

    def __init__(self, n, d):
        super().__init__()
        self.rows = nn.Embedding(n, d)

    def construct(self, ids):
        row = self.rows(ids)
        known = (ids != 0).astype(ms.float32).expand_dims(-1)
        return row * known + ops.stop_gradient(row) * (1 - known), known


class UserTower(nn.Cell):
    """Dense features, hashed fields and the history's mean, with pairwise dot products."""

    def __init__(self, d):
        super().__init__()
        self.fields = nn.CellList([Table(n, d) for n in FIELDS])
        self.bottom = nn.SequentialCell(
            nn.Dense(4, 16), nn.LeakyReLU(0.01), nn.Dense(16, d), nn.LeakyReLU(0.01)
        )
        rows = len(FIELDS) + 2
        self.top = nn.SequentialCell(
            nn.Dense(d + rows * (rows - 1) // 2, 24), nn.LeakyReLU(alpha=0.01), nn.Dense(24, d)
        )
        i, j = np.tril_indices(rows, -1)
        self.pairs = Tensor(i * rows + j, ms.int32)

    def construct(self, dense, ids, liked):
        x = self.bottom(ops.sign(dense) * ops.log1p(ops.abs(dense)))
        rows = [x]
        for i, table in enumerate(self.fields):
            rows.append(table(ids[:, i] % FIELDS[i])[0])
        z = ops.stack(rows + [liked], axis=1)
        dots = ops.bmm(z, z.swapaxes(1, 2)).reshape(z.shape[0], -1)
        return self.top(ops.cat([x, ops.gather(dots, self.pairs, 1)], axis=1))


class ItemTower(nn.Cell):
    """The item's row and its features."""

    def __init__(self, d):
        super().__init__()
        self.features = nn.Dense(3, 6)
        self.mlp = nn.SequentialCell(nn.Dense(d + 6, 24), nn.LeakyReLU(0.01), nn.Dense(24, d))

    def construct(self, row, features):
        return self.mlp(ops.cat([row, ops.tanh(self.features(features))], axis=-1))


def unit(x):
    """Rows of length one."""
    return x / ops.maximum(ops.norm(x, dim=-1, keepdim=True), Tensor(1e-12, ms.float32))


class Net(nn.Cell):
    """Outputs the scores of all users for all items, and which items are the same."""

    def __init__(self, d=8):
        super().__init__()
        self.items = Table(ITEMS, d)
        self.user = UserTower(d)
        self.item = ItemTower(d)
        self.log_scale = Parameter(Tensor(math.log(1 / 0.2), ms.float32))

    def construct(self, dense, ids, history, item, features):
        rows, known = self.items(history)
        liked = (rows * known).sum(axis=1) / ops.clamp(known.sum(axis=1), min=1)
        row, _ = self.items(item)
        u = unit(self.user(dense, ids, liked))
        v = unit(self.item(row, features))
        same = (item.expand_dims(1) == item.expand_dims(0)).astype(ms.float32)
        scale = ops.clamp(ops.exp(self.log_scale), max=100.0)
        return ops.matmul(u, v.T) * scale, same


def loss(outputs, targets):
    """In-batch softmax corrected by the items' log-frequencies, accidental hits taken out."""
    logits, same = outputs
    n = logits.shape[0]
    hits = same * (1 - ops.eye(n, n, ms.float32))
    logits = (logits - targets.expand_dims(0)).masked_fill(hits > 0, -1e4)
    return ops.cross_entropy(logits, ops.arange(n).astype(ms.int32))
