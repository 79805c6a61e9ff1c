"""A small T5 encoder: one class, loops over heads, one-hot look-ups."""

import math

import mindspore as ms
import numpy as np
from mindspore import Parameter, Tensor, nn, ops


def bucket(key, query, half=4, exact=2, reach=16):
    """The bucket of one pair of positions."""
    distance, offset = abs(key - query), half if key > query else 0
    if distance < exact:
        return offset + distance
    far = exact + int(math.log(distance / exact) / math.log(reach / exact) * (half - exact))
    return offset + min(far, half - 1)


def new(shape, name):
    """A parameter of small random numbers."""
    return Parameter(Tensor(np.random.randn(*shape) * 0.02, ms.float32), name=name)


class Net(nn.Cell):
    """All in one cell."""

    def __init__(self, vocab=20, d=16, heads=2, ff=32):
        super().__init__()
        self.d, self.heads = d, heads
        self.vocab = vocab
        self.table = new((vocab, d), "table")
        self.q0, self.k0, self.v0, self.o0 = [new((d, d), n) for n in ("q0", "k0", "v0", "o0")]
        self.bias = new((8, heads), "bias")
        self.g0, self.i0 = new((d,), "g0"), new((ff, d), "i0")
        self.w0, self.f0 = new((d, ff), "w0"), new((d,), "f0")
        self.q1, self.k1, self.v1, self.o1 = [new((d, d), n) for n in ("q1", "k1", "v1", "o1")]
        self.g1, self.i1 = new((d,), "g1"), new((ff, d), "i1")
        self.w1, self.f1 = new((d, ff), "w1"), new((d,), "f1")
        self.last = new((d,), "last")

    @staticmethod
    def norm(x, weight):
        return x / ops.sqrt((x * x).mean(-1, keep_dims=True) + 1e-6) * weight

    def attend(self, x, bias, wq, wk, wv, wo):
        size = self.d // self.heads
        total = 0
        for h in range(self.heads):
            rows = slice(h * size, (h + 1) * size)
            q, k, v = (ops.matmul(x, w[rows].T) for w in (wq, wk, wv))
            p = ops.softmax(ops.bmm(q, k.swapaxes(1, 2)) + bias[:, :, :, h])
            total = total + ops.matmul(ops.bmm(p, v), wo[:, rows].T)
        return total

    def construct(self, ids, lengths):
        t = ids.shape[1]
        table = Tensor([[bucket(k, q) for k in range(t)] for q in range(t)], ms.int32)
        bias = self.bias[table][None]
        padded = (ops.arange(t)[None, :] >= lengths[:, None] + 4).astype(ms.float32)
        bias = bias - 1e30 * padded[:, None, :, None]
        x = ops.matmul(nn.OneHot(depth=self.vocab)(ids), self.table)
        x = x + self.attend(self.norm(x, self.g0), bias, self.q0, self.k0, self.v0, self.o0)
        x = x + ops.matmul(ops.relu(ops.matmul(self.norm(x, self.f0), self.i0.T)), self.w0.T)
        x = x + self.attend(self.norm(x, self.g1), bias, self.q1, self.k1, self.v1, self.o1)
        x = x + ops.matmul(ops.relu(ops.matmul(self.norm(x, self.f1), self.i1.T)), self.w1.T)
        return self.norm(x, self.last)
