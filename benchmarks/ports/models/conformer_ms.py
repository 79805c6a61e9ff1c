"""One Conformer block on frames of features, a class for every frame."""

import math

import mindspore as ms
import numpy as np
from mindspore import Parameter, Tensor, nn, ops
from mindspore.common.initializer import Normal, initializer


def positions(t, d):
    """Sinusoids of the distances t - 1 ... 1 - t."""
    distance = np.arange(t - 1, -t, -1)
    rate = 100.0 ** (-np.arange(0, d, 2) / d)
    angle = distance[:, None] * rate
    table = np.stack([np.sin(angle), np.cos(angle)], axis=-1).reshape(2 * t - 1, d)
    return Tensor(table, ms.float32)


class FeedForward(nn.Cell):
    def __init__(self, d, hidden):
        super().__init__()
        self.norm = nn.LayerNorm((d,), epsilon=1e-5)
        self.up = nn.Dense(d, hidden)
        self.down = nn.Dense(hidden, d)

    def construct(self, x):
        return self.down(ops.silu(self.up(self.norm(x))))


class RelativeAttention(nn.Cell):
    """Attention with the relative positions of Transformer-XL."""

    def __init__(self, d, heads):
        super().__init__()
        self.heads = heads
        self.size = d // heads
        self.query = nn.Dense(d, d)
        self.key = nn.Dense(d, d, has_bias=False)
        self.value = nn.Dense(d, d)
        self.pos = nn.Dense(d, d, has_bias=False)
        self.out = nn.Dense(d, d)
        self.content_bias = Parameter(initializer(Normal(0.5), (heads, self.size)))
        self.position_bias = Parameter(initializer(Normal(0.5), (heads, self.size)))

    def shift(self, x):
        b, h, t, n = x.shape
        x = ops.pad(x, (1, 0)).reshape(b, h, n + 1, t)
        return x[:, :, 1:].reshape(b, h, t, n)

    def construct(self, x):
        b, t, d = x.shape
        q = self.query(x).reshape(b, t, self.heads, self.size)
        k = self.key(x).reshape(b, t, self.heads, self.size).transpose(0, 2, 3, 1)
        v = self.value(x).reshape(b, t, self.heads, self.size).transpose(0, 2, 1, 3)
        p = self.pos(positions(t, d))
        p = p.reshape(2 * t - 1, self.heads, self.size).transpose(1, 2, 0)
        content = ops.matmul((q + self.content_bias).swapaxes(1, 2), k)
        position = ops.matmul((q + self.position_bias).swapaxes(1, 2), p)
        position = self.shift(position)[..., :t]
        scores = (content + position) / math.sqrt(self.size)
        mixed = ops.matmul(ops.softmax(scores, axis=-1), v)
        return self.out(mixed.swapaxes(1, 2).reshape(b, t, d))


class ConvModule(nn.Cell):
    """Pointwise, GLU, depthwise, batch norm, swish, pointwise."""

    def __init__(self, d, kernel):
        super().__init__()
        self.norm = nn.LayerNorm((d,), epsilon=1e-5)
        self.expand = nn.Conv1d(d, 2 * d, 1, has_bias=True)
        self.depthwise = nn.Conv1d(
            d, d, kernel, pad_mode="pad", padding=kernel // 2, group=d, has_bias=False
        )
        self.batch_norm = nn.BatchNorm1d(d, eps=1e-3, momentum=0.9)
        self.project = nn.Conv1d(d, d, 1, has_bias=True)

    def construct(self, x):
        value, gate = ops.chunk(self.expand(self.norm(x).swapaxes(1, 2)), 2, axis=1)
        y = self.depthwise(value * ops.sigmoid(gate))
        y = self.batch_norm(y)
        y = y * ops.sigmoid(y)
        return self.project(y).swapaxes(1, 2)


class Block(nn.Cell):
    def __init__(self, d, heads, hidden, kernel):
        super().__init__()
        self.ff1 = FeedForward(d, hidden)
        self.attn_norm = nn.LayerNorm((d,), epsilon=1e-5)
        self.attn = RelativeAttention(d, heads)
        self.conv = ConvModule(d, kernel)
        self.ff2 = FeedForward(d, hidden)
        self.norm = nn.LayerNorm((d,), epsilon=1e-5)

    def construct(self, x):
        x = x + 0.5 * self.ff1(x)
        x = x + self.attn(self.attn_norm(x))
        x = x + self.conv(x)
        x = x + 0.5 * self.ff2(x)
        return self.norm(x)


class Net(nn.Cell):
    """Logits [frames of all sequences, classes]."""

    def __init__(self, features=10, d=12, heads=2, classes=5):
        super().__init__()
        self.input = nn.Dense(features, d)
        self.block = Block(d, heads, 2 * d, 5)
        self.head = nn.Dense(d, classes)

    def construct(self, x):
        y = self.head(self.block(self.input(x)))
        return y.reshape(-1, y.shape[-1])
