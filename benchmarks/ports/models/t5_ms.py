"""A small T5 encoder with bucketed relative positions."""

import mindspore as ms
import numpy as np
from mindspore import Parameter, Tensor, nn, ops


class T5LayerNorm(nn.Cell):
    """No mean, no bias."""

    def __init__(self, d, eps=1e-6):
        super().__init__()
        self.weight = Parameter(Tensor(np.ones(d), ms.float32), name="weight")
        self.eps = eps

    def construct(self, x):
        variance = x.pow(2).mean(axis=-1, keep_dims=True)
        return self.weight * (x * ops.rsqrt(variance + self.eps))


def relative_buckets(length, buckets=8, max_distance=16):
    """The table of buckets, [query, key], in NumPy."""
    positions = np.arange(length)
    relative = positions[None, :] - positions[:, None]
    half = buckets // 2
    sign = (relative > 0) * half
    distance = np.abs(relative)
    exact = half // 2
    ratio = np.log(np.maximum(distance, 1) / exact) / np.log(max_distance / exact)
    far = exact + (ratio * (half - exact)).astype(np.int64)
    far = np.minimum(far, half - 1)
    return sign + np.where(distance < exact, distance, far)


class T5Attention(nn.Cell):
    """Attention without the division by the root of the size."""

    def __init__(self, d, heads, has_bias):
        super().__init__()
        self.heads = heads
        self.q = nn.Dense(d, d, has_bias=False)
        self.k = nn.Dense(d, d, has_bias=False)
        self.v = nn.Dense(d, d, has_bias=False)
        self.o = nn.Dense(d, d, has_bias=False)
        if has_bias:
            self.relative_attention_bias = nn.Embedding(8, heads)

    def compute_bias(self, length):
        buckets = Tensor(relative_buckets(length), ms.int32)
        values = self.relative_attention_bias(buckets)
        return values.transpose(2, 0, 1).expand_dims(0)

    def split(self, x):
        b, t, d = x.shape
        return x.reshape(b, t, self.heads, d // self.heads).transpose(0, 2, 1, 3)

    def construct(self, x, position_bias):
        b, t, d = x.shape
        q, k, v = self.split(self.q(x)), self.split(self.k(x)), self.split(self.v(x))
        scores = ops.matmul(q, k.transpose(0, 1, 3, 2))
        scores = scores + position_bias
        y = ops.matmul(ops.softmax(scores), v)
        return self.o(y.transpose(0, 2, 1, 3).reshape(b, t, d))


class T5Block(nn.Cell):
    """Attention and a ReLU network, each after a norm."""

    def __init__(self, d, heads, ff, has_bias):
        super().__init__()
        self.SelfAttention = T5Attention(d, heads, has_bias)
        self.layer_norm = T5LayerNorm(d)
        self.wi = nn.Dense(d, ff, has_bias=False)
        self.wo = nn.Dense(ff, d, has_bias=False)
        self.ff_norm = T5LayerNorm(d)
        self.act = nn.ReLU()

    def construct(self, x, bias):
        x = x + self.SelfAttention(self.layer_norm(x), bias)
        return x + self.wo(self.act(self.wi(self.ff_norm(x))))


class Net(nn.Cell):
    """Two blocks which share the first one's bias."""

    def __init__(self, vocab=20, d=16, heads=2, ff=32):
        super().__init__()
        self.shared = nn.Embedding(vocab, d)
        self.block = nn.CellList([T5Block(d, heads, ff, i == 0) for i in range(2)])
        self.final_layer_norm = T5LayerNorm(d)

    def construct(self, ids, lengths):
        t = ids.shape[1]
        bias = self.block[0].SelfAttention.compute_bias(t)
        keep = ops.arange(t).reshape(1, 1, 1, t) < lengths.reshape(-1, 1, 1, 1) + 4
        bias = ops.where(keep, bias, Tensor(-3.4e38, ms.float32))
        x = self.shared(ids)
        for block in self.block:
            x = block(x, bias)
        x = self.final_layer_norm(x)
        return x
