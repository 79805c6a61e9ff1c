"""The Conformer block flat in one cell: positions gathered, the depthwise convolution as a sum."""

import mindspore as ms
import numpy as np
from mindspore import Parameter, Tensor, mint, nn, ops


def swish(x):
    return x / (1 + ops.exp(-x))


class Net(nn.Cell):
    """Everything here; attention scores by broadcast products, batch norm on [B, C, T, 1]."""

    def __init__(self, features=10, d=12, heads=2, classes=5):
        super().__init__()
        self.h, self.s = heads, d // heads
        self.stem = mint.nn.Linear(features, d)
        self.norms = nn.CellList([nn.LayerNorm((d,), epsilon=1e-5) for _ in range(5)])
        self.ups = nn.CellList([mint.nn.Linear(d, 2 * d) for _ in range(2)])
        self.downs = nn.CellList([mint.nn.Linear(2 * d, d) for _ in range(2)])
        self.wq = mint.nn.Linear(d, d)
        self.wk = mint.nn.Linear(d, d, bias=False)
        self.wv = mint.nn.Linear(d, d)
        self.wr = mint.nn.Linear(d, d, bias=False)
        self.wo = mint.nn.Linear(d, d)
        start = np.random.normal(0, 0.5, (2, d)).astype(np.float32)
        self.r_w = Parameter(Tensor(start[0]), name="r_w")
        self.r_r = Parameter(Tensor(start[1]), name="r_r")
        self.pw1 = nn.Dense(d, 2 * d)
        self.taps = Parameter(Tensor(np.random.randn(d, 5).astype(np.float32) * 0.4), name="taps")
        self.bn = nn.BatchNorm2d(d, eps=1e-3)
        self.pw2 = nn.Dense(d, d)
        self.top = mint.nn.Linear(d, classes)

    def heads(self, x):
        return ops.split(x, self.s, axis=-1)

    def attention(self, x):
        t, d = x.shape[1:]
        gap = np.arange(t)[:, None] - np.arange(t)[None]
        angle = gap.reshape(-1, 1) / 100.0 ** (np.arange(d) // 2 * 2 / d)
        table = np.where(np.arange(d) % 2 == 0, np.sin(angle), np.cos(angle))
        r = self.wr(Tensor(table, ms.float32)).reshape(t, t, d)
        q, k, v = self.wq(x), self.wk(x), self.wv(x)
        found = []
        for qi, qr, ki, ri, vi in zip(
            self.heads(q + self.r_w), self.heads(q + self.r_r), self.heads(k), self.heads(r), self.heads(v)
        ):
            score = (qi[:, :, None] * ki[:, None]).sum(axis=-1) + (qr[:, :, None] * ri).sum(axis=-1)
            found.append(mint.matmul(mint.softmax(score * self.s**-0.5, -1), vi))
        return self.wo(ops.concat(found, axis=-1))

    def convolution(self, x):
        t = x.shape[1]
        y = ops.glu(self.pw1(x), -1)
        y = ops.pad(y, (0, 0, 2, 2))
        y = sum(y[:, i : i + t] * self.taps[:, i] for i in range(5))
        y = self.bn(y.swapaxes(1, 2)[..., None])[..., 0].swapaxes(1, 2)
        return self.pw2(swish(y))

    def construct(self, x):
        x = self.stem(x)
        x = x + self.downs[0](swish(self.ups[0](self.norms[0](x)))) / 2
        x = x + self.attention(self.norms[1](x))
        x = x + self.convolution(self.norms[2](x))
        x = x + self.downs[1](swish(self.ups[1](self.norms[3](x)))) / 2
        y = self.top(self.norms[4](x))
        return y.reshape(-1, y.shape[-1])
