"""A masked autoencoder: the order of the patches is given, the first ones are kept."""

import math

import mindspore as ms
import numpy as np
from mindspore import Parameter, ParameterTuple, Tensor, nn, ops

PATCH = 4
SIDE = 4
KEEP = 6


def patchify(images):
    """(b, c, h, w) to (b, patches, pixels and colours)."""
    b, c, _, _ = images.shape
    x = images.reshape(b, c, SIDE, PATCH, SIDE, PATCH)
    x = x.transpose(0, 2, 4, 3, 5, 1)
    return x.reshape(b, SIDE * SIDE, PATCH * PATCH * c)


def sincos(d):
    """Fixed positions: half the features for the row, half for the column; zeros for the class."""
    rates = 10000 ** (-np.arange(d // 4) / (d // 4))
    angles = np.arange(SIDE)[:, None] * rates
    line = np.concatenate([np.sin(angles), np.cos(angles)], 1)
    rows = np.repeat(line, SIDE, axis=0)
    columns = np.tile(line, (SIDE, 1))
    grid = np.concatenate([rows, columns], 1)
    return Tensor(np.concatenate([np.zeros((1, d)), grid]), ms.float32)


def pick(x, index):
    index = ops.broadcast_to(index.expand_dims(-1), index.shape + (x.shape[-1],))
    return ops.gather_elements(x, 1, index)


class Attention(nn.Cell):
    def __init__(self, d, heads):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Dense(d, 3 * d, has_bias=False)
        self.out = nn.Dense(d, d)

    def construct(self, x):
        b, n, d = x.shape
        size = d // self.heads
        qkv = self.qkv(x).reshape(b, n, 3, self.heads, size)
        q, k, v = qkv.transpose(2, 0, 3, 1, 4)
        scores = ops.matmul(q, k.swapaxes(-1, -2)) / math.sqrt(size)
        y = ops.matmul(ops.softmax(scores, axis=-1), v)
        return self.out(y.swapaxes(1, 2).reshape(b, n, d))


class Block(nn.Cell):
    """Norm first."""

    def __init__(self, d, heads):
        super().__init__()
        self.norm1 = nn.LayerNorm((d,), epsilon=1e-6)
        self.attention = Attention(d, heads)
        self.norm2 = nn.LayerNorm((d,), epsilon=1e-6)
        self.mlp = nn.SequentialCell(
            nn.Dense(d, 2 * d), nn.GELU(approximate=False), nn.Dense(2 * d, d)
        )

    def construct(self, x):
        x = x + self.attention(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class Net(nn.Cell):
    """The predicted patches, and the mask that is one where a patch was removed."""

    def __init__(self, d=24, small=16, heads=2):
        super().__init__()
        pixels = PATCH * PATCH * 3
        self.embed = nn.Dense(pixels, d)
        self.cls_token = Parameter(ops.standard_normal((1, 1, d)) * 0.1)
        self.mask_token = Parameter(ops.standard_normal((1, 1, small)) * 0.1)
        self.positions = sincos(d)
        self.decoder_positions = sincos(small)
        self.encoder = nn.CellList([Block(d, heads) for _ in range(2)])
        self.norm = nn.LayerNorm((d,), epsilon=1e-6)
        self.reduce = nn.Dense(d, small)
        self.decoder = Block(small, heads)
        self.decoder_norm = nn.LayerNorm((small,), epsilon=1e-6)
        self.predict = nn.Dense(small, pixels)

    def encode(self, images, keep):
        x = self.embed(patchify(images)) + self.positions[1:]
        x = pick(x, keep)
        cls = self.cls_token + self.positions[:1]
        x = ops.cat([ops.tile(cls, (x.shape[0], 1, 1)), x], axis=1)
        for block in self.encoder:
            x = block(x)
        return self.norm(x)

    def decode(self, x, restore):
        x = self.reduce(x)
        b, n = restore.shape
        hidden = ops.tile(self.mask_token, (b, n - KEEP, 1))
        patches = ops.cat([x[:, 1:], hidden], axis=1)
        patches = pick(patches, restore)
        x = ops.cat([x[:, :1], patches], axis=1)
        x = x + self.decoder_positions
        x = self.decoder_norm(self.decoder(x))
        return self.predict(x)[:, 1:]

    def construct(self, images, order):
        restore = ops.argsort(order.astype(ms.int32), axis=1)
        x = self.encode(images, order[:, :KEEP])
        prediction = self.decode(x, restore)
        mask = (restore >= KEEP).astype(ms.float32)
        return prediction, mask


def loss(outputs, targets):
    """Squared error of the normed pixels over the removed patches."""
    prediction, mask = outputs
    goal = patchify(targets)
    mean = goal.mean(axis=-1, keep_dims=True)
    var = goal.var(axis=-1, ddof=1, keepdims=True)
    goal = (goal - mean) / ops.sqrt(var + 1e-6)
    error = ops.square(prediction - goal).mean(axis=-1)
    return (error * mask).sum() / mask.sum()


class AdamW(nn.Cell):
    """AdamW with a linear warm-up; decay for matrices alone."""

    def __init__(self, parameters, lr=0.02, beta1=0.9, beta2=0.95, eps=1e-6, decay=0.3):
        super().__init__()
        self.parameters = ParameterTuple(parameters)
        self.m = self.parameters.clone("m", init="zeros")
        self.v = self.parameters.clone("v", init="zeros")
        self.decays = [decay if p.ndim > 1 else 0.0 for p in parameters]
        self.lr, self.beta1, self.beta2, self.eps = lr, beta1, beta2, eps
        self.warmup = 4
        self.count = 0

    def construct(self, gradients):
        self.count += 1
        lr = self.lr * min(1.0, self.count / self.warmup)
        b1, b2 = self.beta1, self.beta2
        for p, m, v, g, decay in zip(self.parameters, self.m, self.v, gradients, self.decays):
            ops.assign(m, b1 * m + (1 - b1) * g)
            ops.assign(v, b2 * v + (1 - b2) * ops.square(g))
            mean = m / (1 - b1**self.count)
            square = v / (1 - b2**self.count)
            shrunk = p * (1 - lr * decay)
            ops.assign(p, shrunk - lr * mean / (ops.sqrt(square) + self.eps))
        return gradients


def optimizer(parameters):
    return AdamW(list(parameters))
