"""A causal transformer with ALiBi, grouped-query heads and tied embeddings; padding stands on the left."""

import math

import mindspore as ms
import numpy as np
from mindspore import Tensor, nn, ops
from mindspore.common.initializer import Normal


class Attention(nn.Cell):
    """Causal attention; each key/value head serves several query heads."""

    def __init__(self, d, heads, groups):
        super().__init__()
        self.heads, self.groups, self.size = heads, groups, d // heads
        self.q = nn.Dense(d, d, has_bias=False)
        self.k = nn.Dense(d, groups * self.size, has_bias=False)
        self.v = nn.Dense(d, groups * self.size, has_bias=False)
        self.o = nn.Dense(d, d)
        slopes = [2.0 ** (-8 * (i + 1) / heads) for i in range(heads)]
        self.slopes = Tensor(np.array(slopes).reshape(heads, 1, 1), ms.float32)

    def construct(self, x, valid):
        b, t, d = x.shape
        q = self.q(x).reshape(b, t, self.heads, self.size).transpose(0, 2, 1, 3)
        k = self.k(x).reshape(b, t, self.groups, self.size).transpose(0, 2, 1, 3)
        v = self.v(x).reshape(b, t, self.groups, self.size).transpose(0, 2, 1, 3)
        repeats = self.heads // self.groups
        k = ops.repeat_interleave(k, repeats, axis=1)
        v = ops.repeat_interleave(v, repeats, axis=1)
        scores = ops.matmul(q, k.swapaxes(-1, -2)) / math.sqrt(self.size)
        place = ops.arange(t)
        distance = place.reshape(t, 1) - place.reshape(1, t)
        scores = scores - self.slopes * distance.astype(ms.float32)
        hidden = ops.logical_not(valid)[:, None, None, :]
        hidden = ops.logical_or(distance < 0, ops.logical_and(hidden, distance != 0))
        weights = ops.softmax(scores.masked_fill(hidden, -1e9), axis=-1)
        y = ops.matmul(weights, v)
        return self.o(y.transpose(0, 2, 1, 3).reshape(b, t, d))


class Block(nn.Cell):
    def __init__(self, d, heads, groups):
        super().__init__()
        self.norm1 = nn.LayerNorm((d,), epsilon=1e-5)
        self.attn = Attention(d, heads, groups)
        self.norm2 = nn.LayerNorm((d,), epsilon=1e-5)
        self.mlp = nn.SequentialCell(
            nn.Dense(d, 2 * d), nn.GELU(approximate=False), nn.Dense(2 * d, d)
        )

    def construct(self, x, valid):
        x = x + self.attn(self.norm1(x), valid)
        return x + self.mlp(self.norm2(x))


class Net(nn.Cell):
    """Outputs the logits and the mask of the steps that are no padding."""

    def __init__(self, vocabulary=12, d=16, heads=4, groups=2, depth=2):
        super().__init__()
        self.d = d
        self.embed = nn.Embedding(vocabulary, d, embedding_table=Normal(d**-0.5))
        self.blocks = nn.CellList([Block(d, heads, groups) for _ in range(depth)])
        self.norm = nn.LayerNorm((d,), epsilon=1e-5)

    def construct(self, tokens, padding):
        t = tokens.shape[1]
        valid = ops.arange(t).reshape(1, t) >= padding.reshape(-1, 1)
        x = self.embed(tokens) * math.sqrt(self.d)
        for block in self.blocks:
            x = block(x, valid)
        table = self.embed.embedding_table
        logits = ops.matmul(self.norm(x), table.T)
        return logits, valid.astype(ms.float32)


def loss(outputs, targets):
    """Cross entropy with smoothed labels, a mean over the valid steps."""
    logits, valid = outputs
    smooth = 0.1
    logp = ops.log_softmax(logits, axis=-1)
    chosen = ops.gather_elements(logp, 2, targets.astype(ms.int32).expand_dims(-1)).squeeze(-1)
    each = -(1 - smooth) * chosen - smooth * logp.mean(axis=-1)
    return (each * valid).sum() / valid.sum()


class AdamW(nn.Optimizer):
    """AdamW with warm-up; vectors do not decay."""

    def __init__(self, parameters, rate, warm, betas, eps, decay):
        super().__init__(rate, parameters)
        self.rate, self.warm, self.decay, self.eps = rate, warm, decay, eps
        self.beta1, self.beta2 = betas
        self.count = 0
        self.m = self._parameters.clone(prefix="m", init="zeros")
        self.v = self._parameters.clone(prefix="v", init="zeros")

    def construct(self, gradients):
        self.count += 1
        rate = self.rate * min(1.0, self.count / self.warm)
        correct1 = 1 - self.beta1**self.count
        correct2 = 1 - self.beta2**self.count
        for p, g, m, v in zip(self._parameters, gradients, self.m, self.v):
            ops.assign(m, self.beta1 * m + (1 - self.beta1) * g)
            ops.assign(v, self.beta2 * v + (1 - self.beta2) * g * g)
            step = (m / correct1) / (ops.sqrt(v / correct2) + self.eps)
            decay = self.decay if p.ndim > 1 else 0.0
            ops.assign(p, p - rate * (step + decay * p))
        return True


def optimizer(parameters):
    return AdamW(parameters, rate=0.01, warm=4, betas=(0.9, 0.95), eps=1e-5, decay=0.5)
