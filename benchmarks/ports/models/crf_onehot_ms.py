"""The CRF with one-hot tags and the recursion in probabilities; one flat cell."""

import mindspore as ms
import numpy as np
from mindspore import Parameter, Tensor, mint, nn, ops


def normal(*shape):
    return Tensor(np.random.normal(0, 0.5, shape), ms.float32)


class Net(nn.Cell):
    """The convolution is a product with the words before, here and after."""

    def __init__(self, k=5):
        super().__init__()
        self.k = k
        self.table = Parameter(normal(20, 8), name="table")
        self.filters = Parameter(normal(12, 8, 3), name="filters")
        self.offset = Parameter(normal(12), name="offset")
        self.unary = mint.nn.Linear(12, k)
        self.whole = mint.nn.Linear(12, 4)
        self.first = Parameter(normal(k), name="first")
        self.final = Parameter(normal(k), name="final")
        self.pairs = Parameter(normal(k, k), name="pairs")

    def features(self, x):
        wide = ops.pad(x, (0, 0, 1, 1))
        t = x.shape[1]
        y = self.offset
        for i in range(3):
            y = y + mint.matmul(wide[:, i : i + t], self.filters[:, :, i].T)
        return mint.tanh(y)

    def construct(self, words, lengths, tags):
        b, t = words.shape
        inside = [(lengths > i).float()[:, None] for i in range(t)]
        mask = ops.stack(inside, axis=1)
        h = self.features(self.table[words] * mask)
        u = self.unary(h)
        hot = ops.one_hot(tags.int(), self.k, Tensor(1.0, ms.float32), Tensor(0.0, ms.float32))
        hot = hot * mask
        pooled = mint.sum(h * mask, 1) / lengths.float()[:, None]

        gold = (u * hot).sum(axis=(1, 2)) + mint.matmul(hot[:, 0], self.first)
        gold = gold + (mint.matmul(hot[:, :-1], self.pairs) * hot[:, 1:]).sum(axis=(1, 2))
        ends = mask - ops.concat([mask[:, 1:], ops.zeros_like(mask[:, :1])], axis=1)
        gold = gold + mint.matmul((hot * ends).sum(axis=1), self.final)

        table = mint.exp(self.pairs)
        weight = mint.exp(self.first + u[:, 0])
        total = 0.0
        for i in range(1, t):
            new = mint.matmul(weight, table) * mint.exp(u[:, i])
            weight = new * inside[i] + weight * (1 - inside[i])
            size = weight.sum(axis=1, keepdims=True)
            weight = weight / size
            total = total + mint.log(size)
        total = total[:, 0] + mint.log(mint.matmul(weight, mint.exp(self.final)))
        return gold, total, self.whole(pooled)


def loss(outputs, targets):
    """Sums over the sentences, divided at the end."""
    gold, total, logits = outputs
    b, n = logits.shape
    hot = ops.one_hot(targets.int(), n, Tensor(1.0, ms.float32), Tensor(0.0, ms.float32))
    intent = ops.logsumexp(logits, 1) - (logits * hot).sum(axis=1)
    return mint.sum(total - gold + intent / 2) / b


class Layerwise(nn.Optimizer):
    """LAMB with all the tensors' lists in turn."""

    def __init__(self, parameters):
        super().__init__(0.1, parameters)
        self.first = self._parameters.clone("first", "zeros")
        self.second = self._parameters.clone("second", "zeros")
        self.powers = [1.0, 1.0]

    def construct(self, grads):
        self.powers = [self.powers[0] * 0.9, self.powers[1] * 0.99]
        for i, g in enumerate(grads):
            p = self._parameters[i]
            ops.assign_add(self.first[i], (g - self.first[i]) * 0.1)
            ops.assign_add(self.second[i], (g * g - self.second[i]) * 0.01)
            step = self.first[i] / (1 - self.powers[0])
            step = step / (mint.sqrt(self.second[i] / (1 - self.powers[1])) + 1e-6) + 0.1 * p
            length = mint.sqrt(mint.sum(p * p))
            length = ops.minimum(length, Tensor(10.0, ms.float32))
            size = mint.sqrt(mint.sum(step * step))
            both = ops.logical_and(length > 0, size > 0)
            ratio = ops.where(both, length / ops.maximum(size, Tensor(1e-30, ms.float32)), 1.0)
            ops.assign_sub(p, 0.1 * ratio * step)
        return True


def optimizer(parameters):
    return Layerwise(parameters)
