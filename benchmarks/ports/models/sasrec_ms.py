"""A self-attentive sequential recommender with padding and a weighted BPR loss."""

import math

import mindspore as ms
from mindspore import Tensor, nn, ops
from mindspore.common.initializer import XavierNormal


class Attention(nn.Cell):
    """Several heads, the three projections in one layer."""

    def __init__(self, d, heads):
        super().__init__()
        self.heads = heads
        self.scale = 1 / math.sqrt(d // heads)
        self.to_q = nn.Dense(d, d, has_bias=False)
        self.to_k = nn.Dense(d, d, has_bias=False)
        self.to_v = nn.Dense(d, d, has_bias=False)
        self.out_proj = nn.Dense(d, d, has_bias=False)

    def split(self, x):
        b, t, d = x.shape
        return x.reshape(b, t, self.heads, d // self.heads).transpose(0, 2, 1, 3)

    def construct(self, query, memory, allowed):
        b, t, d = query.shape
        q = self.split(self.to_q(query))
        k = self.split(self.to_k(memory))
        v = self.split(self.to_v(memory))
        scores = ops.matmul(q, k.swapaxes(-1, -2)) * self.scale
        scores = scores.masked_fill(allowed == 0, -1e9)
        y = ops.matmul(ops.softmax(scores, axis=-1), v)
        return self.out_proj(y.transpose(0, 2, 1, 3).reshape(b, t, d))


class FeedForward(nn.Cell):
    """Two point-wise convolutions with a residual."""

    def __init__(self, d):
        super().__init__()
        self.conv1 = nn.Conv1d(d, d, 1, has_bias=True)
        self.conv2 = nn.Conv1d(d, d, 1, has_bias=True)

    def construct(self, x):
        y = ops.relu(self.conv1(x.swapaxes(1, 2)))
        return x + self.conv2(y).swapaxes(1, 2)


class Block(nn.Cell):
    """Attention whose query alone is normed, then the point-wise network."""

    def __init__(self, d, heads):
        super().__init__()
        self.norm1 = nn.LayerNorm((d,), epsilon=1e-8)
        self.attn = Attention(d, heads)
        self.norm2 = nn.LayerNorm((d,), epsilon=1e-8)
        self.ffn = FeedForward(d)

    def construct(self, x, allowed, keep):
        q = self.norm1(x)
        x = q + self.attn(q, x, allowed)
        return self.ffn(self.norm2(x)) * keep


class Net(nn.Cell):
    """Outputs the scores of the next items and of the negatives."""

    def __init__(self, items=9, length=6, d=16, heads=2, blocks=2):
        super().__init__()
        self.d = d
        self.item = nn.Embedding(items, d, embedding_table=XavierNormal(), padding_idx=0)
        self.position = nn.Embedding(length + 1, d, embedding_table=XavierNormal(), padding_idx=0)
        self.blocks = nn.CellList([Block(d, heads) for _ in range(blocks)])
        self.last = nn.LayerNorm((d,), epsilon=1e-8)

    def look_up(self, ids):
        rows = self.item(ids)
        return ops.where((ids == 0).expand_dims(-1), ops.stop_gradient(rows), rows)

    def encode(self, seq):
        length = seq.shape[1]
        seen = (seq != 0).astype(ms.float32)
        keep = seen.expand_dims(-1)
        x = self.look_up(seq) * math.sqrt(self.d)
        place = ops.arange(1, length + 1).astype(ms.float32) * seen
        rows = self.position(place.astype(ms.int32))
        x = x + ops.where(keep == 0, ops.stop_gradient(rows), rows)
        allowed = ops.tril(ops.ones((length, length), ms.float32))
        for block in self.blocks:
            x = block(x, allowed, keep)
        return self.last(x)

    def construct(self, seq, positive, negative):
        h = self.encode(seq)
        good = (h * self.look_up(positive)).sum(axis=-1)
        bad = (h * self.look_up(negative)).sum(axis=-1)
        return good, bad


def loss(outputs, targets):
    """Bayesian personalised ranking over the events, each weighted by its number."""
    good, bad = outputs
    weight = targets.astype(ms.float32)
    return -(ops.logsigmoid(good - bad) * weight).sum() / weight.sum()
