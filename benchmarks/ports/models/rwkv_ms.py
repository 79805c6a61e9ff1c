"""A small RWKV (version 4) language model, its recurrence a loop over time."""

import mindspore as ms
import numpy as np
from mindspore import Parameter, Tensor, nn, ops


def rand(*shape):
    return Tensor(np.random.rand(*shape), ms.float32)


def wkv(w, u, k, v):
    """The averages of v, weighted by exp(k), decayed by w; the newest one has the bonus u."""
    b, t, d = k.shape
    above = ops.zeros((b, d), ms.float32)
    below = ops.zeros((b, d), ms.float32)
    top = ops.full((b, d), -1e30, dtype=ms.float32)
    found = []
    for i in range(t):
        ki, vi = k[:, i], v[:, i]
        most = ops.maximum(top, u + ki)
        old, new = ops.exp(top - most), ops.exp(u + ki - most)
        found.append((old * above + new * vi) / (old * below + new))
        most = ops.maximum(top + w, ki)
        old, new = ops.exp(top + w - most), ops.exp(ki - most)
        above = old * above + new * vi
        below = old * below + new
        top = most
    return ops.stack(found, axis=1)


def shift(x):
    """The sequence one step later."""
    return ops.concat((ops.zeros_like(x[:, :1]), x[:, :-1]), axis=1)


def mix(x, past, ratio):
    return x * ratio + past * (1 - ratio)


class TimeMix(nn.Cell):
    def __init__(self, d):
        super().__init__()
        self.decay = Parameter(Tensor(np.linspace(-3, 1, d), ms.float32))
        self.first = Parameter(rand(d))
        self.mix_k = Parameter(rand(1, 1, d))
        self.mix_v = Parameter(rand(1, 1, d))
        self.mix_r = Parameter(rand(1, 1, d))
        self.key = nn.Dense(d, d, has_bias=False)
        self.value = nn.Dense(d, d, has_bias=False)
        self.receptance = nn.Dense(d, d, has_bias=False)
        self.output = nn.Dense(d, d, has_bias=False)

    def construct(self, x):
        past = shift(x)
        k = self.key(mix(x, past, self.mix_k))
        v = self.value(mix(x, past, self.mix_v))
        r = self.receptance(mix(x, past, self.mix_r))
        w = -ops.exp(self.decay)
        y = wkv(w, self.first, k, v)
        return self.output(ops.sigmoid(r) * y)


class ChannelMix(nn.Cell):
    def __init__(self, d, hidden):
        super().__init__()
        self.mix_k = Parameter(rand(1, 1, d))
        self.mix_r = Parameter(rand(1, 1, d))
        self.key = nn.Dense(d, hidden, has_bias=False)
        self.receptance = nn.Dense(d, d, has_bias=False)
        self.value = nn.Dense(hidden, d, has_bias=False)

    def construct(self, x):
        past = shift(x)
        xk = mix(x, past, self.mix_k)
        xr = mix(x, past, self.mix_r)
        hidden = ops.square(ops.relu(self.key(xk)))
        gate = ops.sigmoid(self.receptance(xr))
        return gate * self.value(hidden)


class Block(nn.Cell):
    def __init__(self, d):
        super().__init__()
        self.ln1 = nn.LayerNorm((d,), epsilon=1e-5)
        self.ln2 = nn.LayerNorm((d,), epsilon=1e-5)
        self.att = TimeMix(d)
        self.ffn = ChannelMix(d, 2 * d)

    def construct(self, x):
        x = x + self.att(self.ln1(x))
        return x + self.ffn(self.ln2(x))


class Net(nn.Cell):
    """Logits of the next token."""

    def __init__(self, vocabulary=14, d=12, depth=2):
        super().__init__()
        self.emb = nn.Embedding(vocabulary, d)
        self.ln0 = nn.LayerNorm((d,), epsilon=1e-5)
        self.blocks = nn.CellList([Block(d) for _ in range(depth)])
        self.ln_out = nn.LayerNorm((d,), epsilon=1e-5)
        self.head = nn.Dense(d, vocabulary, has_bias=False)

    def construct(self, tokens):
        x = self.ln0(self.emb(tokens))
        for block in self.blocks:
            x = block(x)
        return self.head(self.ln_out(x))


def loss(outputs, targets):
    """Cross entropy; half the square of the largest logits adds its gradient alone."""
    b, t, n = outputs.shape
    value = ops.cross_entropy(outputs.reshape(b * t, n), targets.reshape(b * t).astype(ms.int32))
    top = outputs.max(axis=-1)
    pull = 0.5 * 0.02 * ops.square(top).sum() / (b * t)
    return value + pull - ops.stop_gradient(pull)
