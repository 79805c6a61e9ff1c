import mindspore as ms
import numpy as np
from mindspore import nn, ops


def slopes(heads):
    return ms.Tensor((2.0 ** (-8 / heads * np.arange(1, heads + 1))).astype("float32"))


class Net(nn.Cell):
    def __init__(self, vocab=30, width=36, heads=6):
        super().__init__()
        self.heads, self.embed = heads, nn.Embedding(vocab, width)
        self.norm, self.qkv = nn.LayerNorm((width,), epsilon=1e-5), nn.Dense(width, 3 * width)
        self.out, self.head = nn.Dense(width, width), nn.Dense(width, vocab)
        self.slopes = slopes(heads)

    def construct(self, ids):
        b, t = ids.shape
        x = self.embed(ids)
        q, k, v = (
            y.reshape(b, t, self.heads, -1).swapaxes(1, 2) for y in ops.chunk(self.qkv(self.norm(x)), 3, -1)
        )
        place = ops.arange(t).astype(ms.float32)
        bias = (place[None] - place[:, None]) * self.slopes[:, None, None]
        bias = ops.masked_fill(bias, ops.triu(ops.ones((t, t)), 1).astype(ms.bool_), float("-inf"))
        weights = ops.softmax(ops.matmul(q, k.swapaxes(2, 3)) / q.shape[-1] ** 0.5 + bias, -1)
        return self.head(x + self.out(ops.matmul(weights, v).swapaxes(1, 2).reshape(b, t, -1)))
