"""The ALiBi transformer in BLOOM's way: the bias grows with the key's place."""

import mindspore as ms
import numpy as np
from mindspore import Parameter, Tensor, mint, nn, ops


class Mixer(nn.Cell):
    """Queries as [batch, groups, heads of the group, steps, size]; keys are broadcast."""

    def __init__(self, width, groups, share):
        super().__init__()
        self.groups, self.share = groups, share
        self.size = width // groups // share
        self.to_q = mint.nn.Linear(width, width, bias=False)
        self.to_kv = mint.nn.Linear(width, 2 * groups * self.size, bias=False)
        self.merge = mint.nn.Linear(width, width)
        base = 2.0 ** (-8.0 / (groups * share))
        self.slope = base ** np.arange(1, groups * share + 1).reshape(groups, share, 1, 1)

    def construct(self, x, mask):
        b, t, _ = x.shape
        q = self.to_q(x).reshape(b, t, self.groups, self.share, self.size).transpose(0, 2, 3, 1, 4)
        kv = self.to_kv(x).reshape(b, t, 2, self.groups, 1, self.size).transpose(2, 0, 3, 4, 1, 5)
        k, v = kv[0], kv[1]
        score = mint.matmul(q * self.size**-0.5, mint.transpose(k, -1, -2))
        score = score + Tensor(self.slope * np.arange(t), ms.float32) + mask
        score = score - ops.stop_gradient(score.max(axis=-1, keepdims=True))
        part = mint.exp(score)
        y = mint.matmul(part / part.sum(-1, keepdims=True), v)
        return self.merge(y.transpose(0, 3, 1, 2, 4).reshape(b, t, -1))


class Net(nn.Cell):
    """Residual branches in a list, in turn."""

    def __init__(self, words=12, width=16):
        super().__init__()
        start = np.random.normal(0, width**-0.5, (words, width)).astype(np.float32)
        self.wte = Parameter(Tensor(start), name="wte")
        self.norms = nn.CellList([nn.LayerNorm([width], epsilon=1e-5) for _ in range(5)])
        self.mixers = nn.CellList([Mixer(width, 2, 2) for _ in range(2)])
        self.up = nn.CellList([mint.nn.Linear(width, 2 * width) for _ in range(2)])
        self.down = nn.CellList([mint.nn.Linear(2 * width, width) for _ in range(2)])

    def construct(self, tokens, padding):
        t = tokens.shape[1]
        valid = Tensor(np.arange(t), ms.int32)[None] >= padding[:, None]
        seen = Tensor(np.tri(t), ms.float32)[None] * valid[:, None].float()
        seen = ops.maximum(seen, Tensor(np.eye(t), ms.float32))
        mask = ((1 - seen) * -1e9)[:, None, None]
        x = self.wte[tokens] * 4.0
        for i in range(2):
            x = x + self.mixers[i](self.norms[2 * i](x), mask)
            h = self.up[i](self.norms[2 * i + 1](x))
            x = x + self.down[i](h * 0.5 * (1 + mint.erf(h / 2**0.5)))
        return mint.matmul(self.norms[4](x), self.wte.T), valid.float()


def loss(outputs, targets):
    """The library's cross entropy of every step, the padding's weight zero."""
    logits, valid = outputs
    n = logits.shape[-1]
    each = ops.cross_entropy(
        logits.reshape(-1, n), targets.reshape(-1).int(), reduction="none", label_smoothing=0.1
    )
    return mint.sum(each * valid.reshape(-1)) / mint.sum(valid)


class DecayFirst(nn.Optimizer):
    """Weights decay first, then the step; flags and counters as lists."""

    def __init__(self, parameters):
        super().__init__(0.01, parameters)
        self.flags = [p.ndim >= 2 for p in parameters]
        self.moments = self._parameters.clone("moment", "zeros")
        self.squares = self._parameters.clone("square", "zeros")
        self.t = 0

    def construct(self, grads):
        self.t = self.t + 1
        lr = 0.01 * self.t / 4 if self.t < 4 else 0.01
        scale = (1 - 0.95**self.t) ** 0.5 / (1 - 0.9**self.t)
        for i, g in enumerate(grads):
            p = self._parameters[i]
            if self.flags[i]:
                ops.assign(p, p * (1 - lr * 0.5))
            m = self.moments[i] + (g - self.moments[i]) * 0.1
            s = self.squares[i] + (g * g - self.squares[i]) * 0.05
            ops.assign(self.moments[i], m)
            ops.assign(self.squares[i], s)
            ops.assign_sub(p, lr * scale * m / (mint.sqrt(s) + 1e-5 * (1 - 0.95**self.t) ** 0.5))
        return True


def optimizer(parameters):
    return DecayFirst(list(parameters))
