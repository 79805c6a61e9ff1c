"""RWKV without the loop: every pair of steps has its weight in one softmax."""

import mindspore as ms
import numpy as np
from mindspore import Parameter, Tensor, mint, nn, ops


def uniform(*shape):
    return Tensor(np.random.rand(*shape).astype(np.float32))


class Lerp(nn.Cell):
    """Between the step before and this step."""

    def __init__(self, n, d):
        super().__init__()
        self.ratios = ms.ParameterTuple([Parameter(uniform(d), name=f"r{i}") for i in range(n)])

    def construct(self, x):
        before = ops.pad(x, (0, 0, 1, 0))[:, :-1]
        return [before + r * (x - before) for r in self.ratios]


class Attend(nn.Cell):
    """Weights exp(k + (distance - 1) * w), and exp(k + u) for the step itself."""

    def __init__(self, d):
        super().__init__()
        self.lerp = Lerp(3, d)
        self.w = Parameter(uniform(d), name="w")
        self.u = Parameter(uniform(d), name="u")
        self.mats = nn.CellList([mint.nn.Linear(d, d, bias=False) for _ in range(4)])

    def construct(self, x):
        t = x.shape[1]
        ink, inv, inr = self.lerp(x)
        k, v, r = self.mats[0](ink), self.mats[1](inv), self.mats[2](inr)
        gap = np.arange(t)[:, None] - np.arange(t)[None]
        steps = Tensor(np.maximum(gap - 1, 0)[:, :, None], ms.float32)
        same = Tensor((gap == 0)[:, :, None], ms.float32)
        future = Tensor(np.where(gap < 0, -1e9, 0.0)[:, :, None], ms.float32)
        score = k[:, None] - steps * mint.exp(self.w) + same * self.u + future
        mean = (ops.softmax(score, axis=2) * v[:, None]).sum(axis=2)
        return self.mats[3](mean * mint.sigmoid(r))


class Feed(nn.Cell):
    def __init__(self, d):
        super().__init__()
        self.lerp = Lerp(2, d)
        self.up = mint.nn.Linear(d, 2 * d, bias=False)
        self.gate = mint.nn.Linear(d, d, bias=False)
        self.down = mint.nn.Linear(2 * d, d, bias=False)

    def construct(self, x):
        ink, inr = self.lerp(x)
        h = self.up(ink)
        return self.down(ops.relu(h) * h) * mint.sigmoid(self.gate(inr))


class Net(nn.Cell):
    """The residual stream through two pairs of cells."""

    def __init__(self, vocabulary=14, d=12):
        super().__init__()
        self.table = nn.Embedding(vocabulary, d)
        self.norms = nn.CellList([nn.LayerNorm((d,), epsilon=1e-5) for _ in range(6)])
        self.attend = nn.CellList([Attend(d), Attend(d)])
        self.feed = nn.CellList([Feed(d), Feed(d)])
        self.head = mint.nn.Linear(d, vocabulary, bias=False)

    def construct(self, tokens):
        x = self.norms[0](self.table(tokens))
        for i in range(2):
            x = x + self.attend[i](self.norms[1 + 2 * i](x))
            x = x + self.feed[i](self.norms[2 + 2 * i](x))
        return self.head(self.norms[5](x))


def loss(outputs, targets):
    """Cross entropy by one-hot; the largest logits' pull as a product with constants."""
    n = outputs.shape[-1]
    hot = ops.one_hot(targets.int(), n, Tensor(1.0, ms.float32), Tensor(0.0, ms.float32))
    value = -(ops.log_softmax(outputs, axis=-1) * hot).sum(axis=-1).mean()
    fixed = ops.stop_gradient(outputs)
    best = fixed.max(axis=-1, keepdims=True)
    pull = ((outputs - fixed) * best * (fixed == best).float()).sum(axis=-1).mean()
    return value + 0.02 * pull
