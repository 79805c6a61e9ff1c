"""Two towers; the loss as InfoNCE from log-sums, AdamW by hand."""

import mindspore as ms
import numpy as np
from mindspore import Parameter, Tensor, mint, nn, ops


class Tower(nn.Cell):
    """A body, a norm and a projection to unit vectors."""

    def __init__(self, body, d, shared):
        super().__init__()
        self.body = body
        self.norm = nn.LayerNorm([d], epsilon=1e-5)
        self.out = Parameter(Tensor(np.random.randn(d, shared), ms.float32), name="out")

    def construct(self, x):
        y = mint.matmul(self.norm(x), self.out)
        return y * mint.rsqrt(mint.sum(mint.square(y), -1, keepdim=True))


class Net(nn.Cell):
    """Outputs both unit vectors and the scale."""

    def __init__(self, pixels=12, vocab=15, d=16, shared=8):
        super().__init__()
        mlp = nn.SequentialCell(nn.Dense(pixels, d, activation="relu"), nn.Dense(d, d))
        self.image = Tower(mlp, d, shared)
        self.text = Tower(nn.Embedding(vocab, d), d, shared)
        self.temperature = Parameter(Tensor(0.0, ms.float32), name="temperature")

    def construct(self, image, text, lengths):
        means = []
        for row, length in zip(text, lengths.asnumpy()):
            means.append(self.text.body(row[: int(length) + 1]).mean(0))
        scale = mint.minimum(mint.exp(self.temperature), Tensor(100.0, ms.float32))
        return self.image(self.image.body(image)), self.text(ops.stack(means)), scale


def loss(outputs, targets=None):
    """The pairs against all others, row by row and column by column."""
    a, b, scale = outputs
    s = scale * (a[:, None, :] * b[None, :, :]).sum(-1)
    n = s.shape[0]
    pairs = (s * Tensor(np.eye(n), ms.float32)).sum()
    return (0.5 * (ops.logsumexp(s, 0).sum() + ops.logsumexp(s, 1).sum()) - pairs) / n


class AdamW(nn.Optimizer):
    """Moments in a list, decay first."""

    def __init__(self, parameters):
        super().__init__(5e-3, parameters)
        self.m = [ops.zeros_like(p) for p in self.parameters]
        self.v = [ops.zeros_like(p) for p in self.parameters]
        self.t = 0

    def construct(self, gradients):
        self.t += 1
        for i, (p, g) in enumerate(zip(self.parameters, gradients)):
            self.m[i] = 0.9 * self.m[i] + 0.1 * g
            self.v[i] = 0.98 * self.v[i] + 0.02 * g * g
            step = self.m[i] / (1 - 0.9**self.t)
            step = step / (ops.sqrt(self.v[i] / (1 - 0.98**self.t)) + 1e-6)
            keep = 1 - 5e-3 * 0.2 if len(p.shape) > 1 else 1.0
            ops.assign(p, keep * p - 5e-3 * step)
        return True


def optimizer(parameters):
    """The same settings."""
    return AdamW(parameters)
