"""A small translation transformer with MindSpore's nn.MultiheadAttention."""

import math

import mindspore as ms
import numpy as np
from mindspore import Tensor, nn, ops
from mindspore.experimental import optim

D, HEADS, FF = 16, 4, 24


def table(length):
    """Sinusoids, one channel after the other."""
    rows = [
        [
            math.sin(p / 10000 ** (c / D)) if c % 2 == 0 else math.cos(p / 10000 ** ((c - 1) / D))
            for c in range(D)
        ]
        for p in range(length)
    ]
    return Tensor(rows, ms.float32)


def attention():
    """Attention without biases."""
    return nn.MultiheadAttention(D, HEADS, has_bias=False, batch_first=True)


class Sublayers(nn.Cell):
    """A layer of the encoder or, with cross-attention, of the decoder."""

    def __init__(self, cross):
        super().__init__()
        self.attend = attention()
        self.cross = cross
        if cross:
            self.look = attention()
        self.up = nn.Dense(D, FF, activation="relu")
        self.down = nn.Dense(FF, D)
        self.norms = nn.CellList([nn.LayerNorm([D], epsilon=1e-5) for _ in range(2 + cross)])

    def construct(self, x, memory, causal, pad):
        if self.cross:
            x = self.norms[0](x + self.attend(x, x, x, attn_mask=causal, need_weights=False)[0])
            y = self.look(x, memory, memory, key_padding_mask=pad, need_weights=False)[0]
            x = self.norms[1](x + y)
        else:
            y = self.attend(x, x, x, key_padding_mask=pad, need_weights=False)[0]
            x = self.norms[0](x + y)
        return self.norms[-1](x + self.down(self.up(x)))


class Net(nn.Cell):
    """One encoder and two decoder layers."""

    def __init__(self, source=16, target=5):
        super().__init__()
        self.source = nn.Embedding(source, D)
        self.target = nn.Embedding(target, D)
        self.layers = nn.CellList([Sublayers(False), Sublayers(True), Sublayers(True)])
        self.logits = nn.Dense(D, target)
        self.positions = table(16)

    def embed(self, cell, ids):
        return cell(ids) * D**0.5 + self.positions[: ids.shape[1]]

    def construct(self, source, lengths, target):
        t = target.shape[1]
        pad = ops.arange(source.shape[1])[None] >= lengths[:, None] + 3
        causal = Tensor(~np.tri(t, dtype=bool))
        memory = self.layers[0](self.embed(self.source, source), None, None, pad)
        x = self.embed(self.target, target)
        for layer in self.layers[1:]:
            x = layer(x, memory, causal, pad)
        return self.logits(x)


def loss(logits, targets):
    """Smoothing written as two terms."""
    n = logits.shape[-1]
    logp = logits - ops.logsumexp(logits, -1, keepdim=True)
    hit = ops.gather_elements(logp, 2, targets[..., None].astype(ms.int32))[..., 0]
    rest = logp[..., 1:].sum(-1) - hit
    keep = (targets != 0).astype(ms.float32)
    return -((0.9 * hit + 0.1 / (n - 2) * rest) * keep).sum() / keep.sum()


class Noam(optim.AdamW):
    """Warm-up of two steps, then the inverse root."""

    def __init__(self, parameters):
        super().__init__(parameters, lr=0.01, betas=(0.9, 0.98), eps=1e-9, weight_decay=0.0)
        self.calls = 0

    def construct(self, gradients):
        self.calls += 1
        rate = 0.05 * D**-0.5 * min(self.calls**-0.5, self.calls * 2**-1.5)
        for group in self.param_groups:
            ops.assign(group["lr"], Tensor(rate, ms.float32))
        return super().construct(gradients)


def optimizer(parameters):
    """PyTorch's formula of Adam comes with AdamW(weight_decay=0)."""
    return Noam(parameters)
