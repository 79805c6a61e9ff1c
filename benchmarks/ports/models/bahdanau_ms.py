"""A translator: bidirectional GRU encoder, GRU decoder with Bahdanau's attention."""

import mindspore as ms
import numpy as np
from mindspore import Parameter, Tensor, nn, ops

PAD = 0


class GRUCell(nn.Cell):
    """One step, gates in PyTorch's order."""

    def __init__(self, inputs, hidden):
        super().__init__()
        self.hidden = hidden
        bound = hidden**-0.5

        def start(*shape):
            return Tensor(np.random.uniform(-bound, bound, shape), ms.float32)

        self.weight_ih = Parameter(start(3 * hidden, inputs))
        self.weight_hh = Parameter(start(3 * hidden, hidden))
        self.bias_ih = Parameter(start(3 * hidden))
        self.bias_hh = Parameter(start(3 * hidden))

    def construct(self, x, h):
        gates_x = ops.matmul(x, self.weight_ih.T) + self.bias_ih
        gates_h = ops.matmul(h, self.weight_hh.T) + self.bias_hh
        xr, xz, xn = ops.chunk(gates_x, 3, axis=-1)
        hr, hz, hn = ops.chunk(gates_h, 3, axis=-1)
        r = ops.sigmoid(xr + hr)
        z = ops.sigmoid(xz + hz)
        n = ops.tanh(xn + r * hn)
        return (1 - z) * n + z * h


class Encoder(nn.Cell):
    """Both directions over the words of each sentence, not over its padding."""

    def __init__(self, vocabulary, d, hidden):
        super().__init__()
        self.hidden = hidden
        self.embed = nn.Embedding(vocabulary, d)
        self.ahead = GRUCell(d, hidden)
        self.back = GRUCell(d, hidden)
        self.bridge = nn.Dense(hidden, hidden)

    def run(self, cell, x, alive, order):
        h = ops.zeros((x.shape[0], self.hidden), ms.float32)
        states = [None] * x.shape[1]
        for i in order:
            live = alive[:, i : i + 1]
            h = ops.where(live, cell(x[:, i], h), h)
            states[i] = h * live.astype(h.dtype)
        return ops.stack(states, axis=1), h

    def construct(self, source, alive):
        x = self.embed(source)
        t = source.shape[1]
        ahead, _ = self.run(self.ahead, x, alive, range(t))
        back, last = self.run(self.back, x, alive, reversed(range(t)))
        return ops.concat((ahead, back), axis=-1), ops.tanh(self.bridge(last))


class Attention(nn.Cell):
    """v . tanh(W query + U keys)."""

    def __init__(self, hidden, keys, size):
        super().__init__()
        self.query = nn.Dense(hidden, size, has_bias=False)
        self.key = nn.Dense(keys, size)
        self.score = nn.Dense(size, 1, has_bias=False)

    def construct(self, h, keys, mask):
        energy = self.score(ops.tanh(self.query(h).expand_dims(1) + keys)).squeeze(-1)
        energy = energy.masked_fill(ops.logical_not(mask), -1e9)
        return ops.softmax(energy, axis=-1)


class Net(nn.Cell):
    """Outputs the logits of each target word and the attention weights."""

    def __init__(self, source_words=12, target_words=9, d=6, hidden=8, size=7):
        super().__init__()
        self.encoder = Encoder(source_words, d, hidden)
        self.attention = Attention(hidden, 2 * hidden, size)
        self.embed = nn.Embedding(target_words, d)
        self.cell = GRUCell(d + 2 * hidden, hidden)
        self.out = nn.Dense(hidden + 2 * hidden + d, target_words)

    def construct(self, source, lengths, previous):
        mask = ops.arange(source.shape[1]).expand_dims(0) < lengths.expand_dims(1)
        states, h = self.encoder(source, mask)
        keys = self.attention.key(states)
        words = self.embed(previous)
        logits, weights = [], []
        for i in range(previous.shape[1]):
            a = self.attention(h, keys, mask)
            context = ops.bmm(a.expand_dims(1), states).squeeze(1)
            h = self.cell(ops.concat((words[:, i], context), axis=-1), h)
            logits.append(self.out(ops.concat((h, context, words[:, i]), axis=-1)))
            weights.append(a)
        return ops.stack(logits, axis=1), ops.stack(weights, axis=1)


def loss(outputs, targets):
    """Negative log likelihood per sentence, and the coverage loss per target word."""
    logits, weights = outputs
    targets = targets.astype(ms.int32)
    words = (targets != PAD).astype(ms.float32)
    logp = ops.log_softmax(logits, axis=-1)
    chosen = ops.gather_elements(logp, 2, targets.expand_dims(-1)).squeeze(-1)
    nll = -(chosen * words).sum()
    coverage = ops.cumsum(weights, 1) - weights
    overlap = ops.minimum(weights, coverage).sum(axis=-1)
    return nll / targets.shape[0] + (overlap * words).sum() / words.sum()


class ClippedSGD(nn.Optimizer):
    """Nesterov's momentum on gradients clipped by their common norm; the rate decays."""

    def __init__(self, parameters, limit, gamma, rate, momentum):
        super().__init__(rate, parameters)
        self.limit, self.gamma, self.rate, self.momentum = limit, gamma, rate, momentum
        self.velocity = self._parameters.clone(prefix="velocity", init="zeros")

    def construct(self, gradients):
        norm = ops.sqrt(sum(ops.square(g).sum() for g in gradients))
        factor = ops.minimum(self.limit / (norm + 1e-6), Tensor(1.0, ms.float32))
        for p, g, velocity in zip(self._parameters, gradients, self.velocity):
            g = g * factor
            ops.assign(velocity, self.momentum * velocity + g)
            ops.assign(p, p - self.rate * (g + self.momentum * velocity))
        self.rate = self.rate * self.gamma
        return True


def optimizer(parameters):
    return ClippedSGD(parameters, limit=1.0, gamma=0.7, rate=0.3, momentum=0.9)
