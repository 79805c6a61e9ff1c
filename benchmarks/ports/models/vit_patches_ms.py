"""A small vision transformer, channels last: patches cut by a reshape and multiplied."""

import mindspore as ms
import numpy as np
from mindspore import Parameter, Tensor, mint, nn, ops


def weight(name, *shape):
    """A named parameter."""
    return Parameter(Tensor(np.random.normal(0, 0.02, shape), ms.float32), name=name)


class Encoder(nn.Cell):
    """Pre-norm block; attention in one cell with its network."""

    def __init__(self, dim, heads, hidden, index):
        super().__init__()
        self.heads = heads
        self.before = nn.LayerNorm((dim,), epsilon=1e-6)
        self.in_weight = weight(f"in_weight_{index}", 3 * dim, dim)
        self.in_bias = weight(f"in_bias_{index}", 3 * dim)
        self.out = nn.Dense(dim, dim)
        self.between = nn.LayerNorm((dim,), epsilon=1e-6)
        self.up, self.down = nn.Dense(dim, hidden), nn.Dense(hidden, dim)

    def construct(self, x):
        b, n, d = x.shape
        y = ops.dense(self.before(x), self.in_weight, self.in_bias)
        q, k, v = (
            a.reshape(b, n, self.heads, -1).transpose(0, 2, 1, 3) for a in ops.chunk(y, 3, -1)
        )
        p = ops.softmax(ops.matmul(q, k.transpose(0, 1, 3, 2)) / (d // self.heads) ** 0.5)
        x = x + self.out(ops.matmul(p, v).transpose(0, 2, 1, 3).reshape(b, n, d))
        return x + self.down(ops.gelu(self.up(self.between(x))))


class Net(nn.Cell):
    """The same weights, the class token added to its position before the concatenation."""

    def __init__(self, size=12, patch=4, dim=16, heads=2, hidden=32, depth=2, classes=5):
        super().__init__()
        self.patch, self.dim = patch, dim
        self.token = weight("token", 1, 1, dim)
        self.positions = weight("positions", 1, (size // patch) ** 2 + 1, dim)
        self.kernel = weight("kernel", dim, 3, patch, patch)
        self.offset = weight("offset", dim)
        self.encoders = nn.CellList([Encoder(dim, heads, hidden, i) for i in range(depth)])
        self.last = nn.LayerNorm((dim,), epsilon=1e-6)
        self.classify = nn.Dense(dim, classes)

    def construct(self, images):
        b, p = images.shape[0], self.patch
        x = images.transpose(0, 2, 3, 1)
        n = x.shape[1] // p
        x = x.reshape(b, n, p, n, p, 3).transpose(0, 1, 3, 2, 4, 5).reshape(b, n * n, -1)
        kernel = self.kernel.transpose(2, 3, 1, 0).reshape(-1, self.dim)
        x = mint.matmul(x, kernel) + self.offset + self.positions[:, 1:]
        first = mint.broadcast_to(self.token + self.positions[:, :1], (b, 1, self.dim))
        x = mint.cat((first, x), 1)
        for encoder in self.encoders:
            x = encoder(x)
        return self.classify(self.last(x[:, 0, :]))
