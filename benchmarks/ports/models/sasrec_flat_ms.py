"""SASRec with q, k and v in one weight, heads in a loop, dense layers for the convolutions."""

import mindspore as ms
import numpy as np
from mindspore import Parameter, Tensor, mint, nn, ops


def normal(*shape):
    """A parameter of small normal numbers."""
    return Parameter(Tensor(0.2 * np.random.randn(*shape), ms.float32))


class Layer(nn.Cell):
    """One block, batch and time in one axis outside the attention."""

    def __init__(self, size, heads):
        super().__init__()
        self.size = size
        self.heads = heads
        self.ln_q = nn.LayerNorm((size,), epsilon=1e-8)
        self.qkv_weight = normal(3 * size, size)
        self.out = nn.Dense(size, size, has_bias=False)
        self.ln_f = nn.LayerNorm((size,), epsilon=1e-8)
        self.up = nn.Dense(size, size)
        self.down = nn.Dense(size, size)

    def project(self, x, part):
        rows = slice(part * self.size, (part + 1) * self.size)
        return mint.matmul(x, self.qkv_weight[rows].T)

    def construct(self, x, hidden, shape):
        query = self.ln_q(x)
        q = self.project(query, 0).reshape(shape)
        k = self.project(x, 1).reshape(shape)
        v = self.project(x, 2).reshape(shape)
        width = self.size // self.heads
        parts = []
        for i in range(self.heads):
            part = slice(i * width, (i + 1) * width)
            score = mint.bmm(q[:, :, part] / width**0.5, mint.permute(k[:, :, part], (0, 2, 1)))
            parts.append(mint.bmm(mint.softmax(score + hidden, 2), v[:, :, part]))
        query = query + self.out(mint.cat(parts, 2).reshape(x.shape))
        f = self.ln_f(query)
        return f + self.down(mint.nn.functional.relu(self.up(f)))


class Net(nn.Cell):
    """Scores of positives and negatives."""

    def __init__(self, vocabulary=9, length=6, size=16):
        super().__init__()
        self.catalogue = normal(vocabulary, size)
        self.places = normal(length + 1, size)
        self.layer_a = Layer(size, 2)
        self.layer_b = Layer(size, 2)
        self.ln_out = nn.LayerNorm((size,), epsilon=1e-8)
        self.hidden = Tensor(np.triu(np.full((length, length), -1e9), 1), ms.float32)

    def rows(self, table, ids):
        body = mint.cat([ops.stop_gradient(table[:1]), table[1:]], 0)
        return ops.gather(body, ids, 0)

    def construct(self, history, wanted, other):
        b, t = history.shape
        real = (history != 0).astype(ms.int32)
        spots = (real * Tensor(np.arange(1, t + 1), ms.int32)).reshape(-1)
        x = self.rows(self.catalogue, history.reshape(-1)) * 4.0 + self.rows(self.places, spots)
        real = real.reshape(-1, 1).astype(ms.float32)
        for layer in (self.layer_a, self.layer_b):
            x = layer(x, self.hidden, (b, t, -1)) * real
        x = self.ln_out(x).reshape(b, t, 1, -1)
        good = mint.matmul(x, self.rows(self.catalogue, wanted).expand_dims(-1))
        bad = mint.matmul(x, self.rows(self.catalogue, other).expand_dims(-1))
        return good.reshape(b, t), bad.reshape(b, t)


def loss(outputs, targets):
    """log(1 + exp(bad - good)), averaged with the weights."""
    gap = outputs[1] - outputs[0]
    weight = targets / targets.astype(ms.float32).sum()
    return mint.sum(mint.log(1 + mint.exp(gap)) * weight)
