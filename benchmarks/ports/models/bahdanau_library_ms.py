"""The translator with MindSpore's own GRU and GRU cell, everything in one cell."""

import mindspore as ms
import numpy as np
from mindspore import Parameter, Tensor, mint, nn, ops


class Net(nn.Cell):
    """Softmax and context as sums; the logits are made of all steps at once."""

    def __init__(self, d=6, hidden=8, size=7):
        super().__init__()
        self.hidden = hidden
        self.src = nn.Embedding(12, d)
        self.trg = nn.Embedding(9, d)
        self.rnn = nn.GRU(d, hidden, batch_first=True, bidirectional=True)
        self.init = mint.nn.Linear(hidden, hidden)
        self.wa = mint.nn.Linear(hidden, size, bias=False)
        self.ua = mint.nn.Linear(2 * hidden, size)
        self.va = Parameter(Tensor(np.random.randn(size).astype(np.float32)), name="va")
        self.step = nn.GRUCell(d + 2 * hidden, hidden)
        self.vocab = mint.nn.Linear(3 * hidden + d, 9)

    def attend(self, h, annotations, projected, bias):
        e = (ops.tanh(projected + self.wa(h)[:, None]) * self.va).sum(axis=-1) + bias
        e = mint.exp(e - e.max(axis=-1, keepdims=True))
        alpha = e / mint.sum(e, 1, keepdim=True)
        return alpha, (alpha[:, :, None] * annotations).sum(axis=1)

    def construct(self, source, lengths, previous):
        b, t = source.shape
        start = ops.zeros((2, b, self.hidden), ms.float32)
        found, last = self.rnn(self.src(source), start, seq_length=lengths.astype(ms.int32))
        inside = (Tensor(np.arange(t), ms.int32)[None] < lengths[:, None]).float()
        found = found * inside[:, :, None]
        bias = (inside - 1) * 1e9
        projected = self.ua(found)
        h = ops.tanh(self.init(last[1]))
        rows, alphas = [], []
        for word in ops.unstack(self.trg(previous), axis=1):
            alpha, context = self.attend(h, found, projected, bias)
            h = self.step(mint.concat((word, context), -1), h)
            rows.append(mint.concat((h, context, word), -1))
            alphas.append(alpha)
        return self.vocab(ops.stack(rows, axis=1)), ops.stack(alphas, axis=1)


def loss(outputs, targets):
    """The coverage kept in a running sum."""
    logits, alphas = outputs
    b, n, v = logits.shape
    nll = ops.cross_entropy(
        logits.reshape(b * n, v), targets.reshape(b * n).int(), ignore_index=0, reduction="sum"
    )
    seen = ops.zeros_like(alphas[:, 0])
    total, count = 0.0, 0.0
    for i in range(n):
        real = (targets[:, i] > 0).float()
        both = ops.where(alphas[:, i] < seen, alphas[:, i], seen).sum(axis=-1)
        total = total + (both * real).sum()
        count = count + real.sum()
        seen = seen + alphas[:, i]
    return nll / b + total / count


class Nesterov(nn.Optimizer):
    """Clipped where the norm is above one; the step in two parts."""

    def __init__(self, parameters):
        super().__init__(0.3, parameters)
        self.buffers = self._parameters.clone("buffer", "zeros")
        self.done = 0

    def construct(self, grads):
        lr = 0.3 * 0.7**self.done
        norm = sum((g * g).sum() for g in grads) ** 0.5
        if float(norm) > 1.0:
            grads = [g / (norm + 1e-6) for g in grads]
        for p, g, buffer in zip(self._parameters, grads, self.buffers):
            new = 0.9 * buffer + g
            ops.assign_sub(p, lr * g)
            ops.assign_sub(p, lr * 0.9 * new)
            ops.assign(buffer, new)
        self.done += 1
        return True


def optimizer(parameters):
    return Nesterov(parameters)
