"""The language model with sums over positions in place of a concatenation; AdamW by hand."""

import math

import mindspore as ms
from mindspore import Parameter, Tensor, mint, nn, ops


class Net(nn.Cell):
    """Each position's slice of the weights is applied to its own embedding."""

    def __init__(self, vocab=12, k=6, hidden=16, context=4):
        super().__init__()
        self.k, self.context = k, context
        self.words = nn.Embedding(vocab, k)
        self.gain = Parameter(Tensor([1.0] * (context * k), ms.float32), name="gain")
        self.offset = Parameter(Tensor([0.0] * (context * k), ms.float32), name="offset")
        self.to_hidden = nn.Dense(context * k, hidden)
        self.to_logits = nn.Dense(hidden, vocab, has_bias=False)
        self.skip = nn.Dense(context * k, vocab)

    def construct(self, words):
        parts = [self.words(words[:, i]) for i in range(self.context)]
        n = self.context * self.k
        mean = sum(p.sum(1, keepdims=True) for p in parts) / n
        var = sum(mint.square(p - mean).sum(1, keepdims=True) for p in parts) / n
        hidden, logits = self.to_hidden.bias, self.skip.bias
        for i, p in enumerate(parts):
            at = slice(i * self.k, (i + 1) * self.k)
            p = (p - mean) / mint.sqrt(var + 1e-5) * self.gain[at] + self.offset[at]
            hidden = hidden + mint.matmul(p, self.to_hidden.weight[:, at].T)
            logits = logits + mint.matmul(p, self.skip.weight[:, at].T)
        return logits + mint.matmul(mint.tanh(hidden), self.to_logits.weight.T)


class AdamW(nn.Optimizer):
    """A list of rates, one for each step."""

    def __init__(self, parameters, rates):
        super().__init__(rates[0], parameters)
        self.rates, self.t = rates, 0
        self.m = self.parameters.clone(prefix="m", init="zeros")
        self.v = self.parameters.clone(prefix="v", init="zeros")

    def construct(self, gradients):
        rate = self.rates[self.t]
        self.t += 1
        for p, g, m, v in zip(self.parameters, gradients, self.m, self.v):
            ops.assign(m, m + 0.1 * (g - m))
            ops.assign(v, v + 0.05 * (g * g - v))
            root = ops.sqrt(v / (1 - 0.95**self.t)) + 1e-8
            kept = p * (1 - 0.1 * rate) if p.ndim > 1 else p
            ops.assign(p, kept - rate / (1 - 0.9**self.t) * m / root)
        return True


def optimizer(parameters):
    """Two steps of warm-up, four of the cosine."""
    rates = [0.01, 0.02]
    rates += [0.02 * (0.55 + 0.45 * math.cos(math.pi * i / 4)) for i in range(4)]
    return AdamW(parameters, rates)
