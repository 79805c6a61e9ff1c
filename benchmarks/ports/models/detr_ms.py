"""DETR: patches, one encoder layer, two decoder layers with learned queries, auxiliary losses."""

import math

import mindspore as ms
import numpy as np
from mindspore import Parameter, Tensor, nn, ops
from mindspore.common.initializer import XavierUniform, initializer

CLASSES = 8


class Attention(nn.Cell):
    """Attention of several heads with one matrix for queries, keys and values."""

    def __init__(self, d, heads):
        super().__init__()
        self.heads = heads
        self.in_weight = Parameter(initializer(XavierUniform(), (3 * d, d)), name="in_weight")
        self.in_bias = Parameter(initializer("zeros", (3 * d,)), name="in_bias")
        self.out = nn.Dense(d, d)

    def split(self, x):
        b, n, d = x.shape
        return x.reshape(b, n, self.heads, d // self.heads).transpose(0, 2, 1, 3)

    def construct(self, query, key, value, padded=None):
        d = query.shape[-1]
        wq, wk, wv = self.in_weight[:d], self.in_weight[d : 2 * d], self.in_weight[2 * d :]
        bq, bk, bv = self.in_bias[:d], self.in_bias[d : 2 * d], self.in_bias[2 * d :]
        q = self.split(ops.matmul(query, wq.T) + bq)
        k = self.split(ops.matmul(key, wk.T) + bk)
        v = self.split(ops.matmul(value, wv.T) + bv)
        scores = ops.matmul(q, k.swapaxes(2, 3)) / math.sqrt(d // self.heads)
        if padded is not None:
            scores = scores.masked_fill(padded[:, None, None, :], -1e9)
        weights = ops.softmax(scores, axis=-1)
        y = ops.matmul(weights, v).transpose(0, 2, 1, 3)
        return self.out(y.reshape(y.shape[0], y.shape[1], d))


class SinePositions(nn.Cell):
    """Positions over the valid part of the grid, rows first, sines and cosines in turn."""

    def __init__(self, features, temperature=100.0):
        super().__init__()
        k = np.arange(features)
        self.rates = Tensor(temperature ** (2 * (k // 2) / features), ms.float32)

    def construct(self, padded):
        valid = ops.logical_not(padded).astype(ms.float32)
        y, x = valid.cumsum(axis=1), valid.cumsum(axis=2)
        y = y / (y[:, -1:, :] + 1e-6) * 2 * math.pi
        x = x / (x[:, :, -1:] + 1e-6) * 2 * math.pi
        parts = []
        for p in (y, x):
            b, h, w = p.shape
            p = p.expand_dims(-1) / self.rates
            p = ops.stack([ops.sin(p[..., 0::2]), ops.cos(p[..., 1::2])], axis=-1)
            parts.append(p.reshape(b, h * w, -1))
        return ops.cat(parts, axis=-1)


class FeedForward(nn.Cell):
    def __init__(self, d, hidden):
        super().__init__()
        self.up = nn.Dense(d, hidden)
        self.down = nn.Dense(hidden, d)

    def construct(self, x):
        return self.down(ops.relu(self.up(x)))


class EncoderLayer(nn.Cell):
    def __init__(self, d, heads, hidden):
        super().__init__()
        self.attention = Attention(d, heads)
        self.feed = FeedForward(d, hidden)
        self.norm1 = nn.LayerNorm((d,), epsilon=1e-5)
        self.norm2 = nn.LayerNorm((d,), epsilon=1e-5)

    def construct(self, x, pos, padded):
        q = x + pos
        x = self.norm1(x + self.attention(q, q, x, padded))
        return self.norm2(x + self.feed(x))


class DecoderLayer(nn.Cell):
    def __init__(self, d, heads, hidden):
        super().__init__()
        self.self_attention = Attention(d, heads)
        self.cross_attention = Attention(d, heads)
        self.feed = FeedForward(d, hidden)
        self.norm1 = nn.LayerNorm((d,), epsilon=1e-5)
        self.norm2 = nn.LayerNorm((d,), epsilon=1e-5)
        self.norm3 = nn.LayerNorm((d,), epsilon=1e-5)

    def construct(self, x, queries, memory, pos, padded):
        q = x + queries
        x = self.norm1(x + self.self_attention(q, q, x))
        y = self.cross_attention(x + queries, memory + pos, memory, padded)
        x = self.norm2(x + y)
        return self.norm3(x + self.feed(x))


class Net(nn.Cell):
    """Class scores and boxes of all queries after each decoder layer."""

    def __init__(self, d=24, heads=3, hidden=40, queries=5):
        super().__init__()
        self.patch = nn.Conv2d(3, d, 4, stride=4, pad_mode="valid", has_bias=True)
        self.positions = SinePositions(d // 2)
        self.encoder = EncoderLayer(d, heads, hidden)
        self.decoder = nn.CellList([DecoderLayer(d, heads, hidden) for _ in range(2)])
        self.norm = nn.LayerNorm((d,), epsilon=1e-5)
        self.queries = Parameter(initializer(XavierUniform(), (queries, d)), name="queries")
        self.classify = nn.Dense(d, CLASSES + 1)
        self.box = nn.SequentialCell(nn.Dense(d, d), nn.ReLU(), nn.Dense(d, 4), nn.Sigmoid())

    def construct(self, images, widths):
        x = self.patch(images)
        b, d, h, w = x.shape
        columns = ops.arange(w)
        padded = columns[None, None, :] >= widths[:, None, None]
        padded = ops.broadcast_to(padded, (b, h, w))
        pos = self.positions(padded)
        padded = padded.reshape(b, h * w)
        tokens = x.reshape(b, d, h * w).swapaxes(1, 2)
        memory = self.encoder(tokens, pos, padded)
        queries = ops.broadcast_to(self.queries, (b,) + self.queries.shape)
        out = ops.zeros_like(queries)
        scores, boxes = [], []
        for layer in self.decoder:
            out = layer(out, queries, memory, pos, padded)
            y = self.norm(out)
            scores.append(self.classify(y))
            boxes.append(self.box(y))
        return ops.stack(scores), ops.stack(boxes)


def corners(boxes):
    center, half = boxes[..., :2], boxes[..., 2:] / 2
    return ops.cat([center - half, center + half], axis=-1)


def area(low, high):
    size = high - low
    return size[..., 0] * size[..., 1]


def generalized_iou(a, b):
    """Of pairs of corners."""
    low = ops.maximum(a[..., :2], b[..., :2])
    high = ops.maximum(ops.minimum(a[..., 2:], b[..., 2:]), low)
    inner = area(low, high)
    union = area(a[..., :2], a[..., 2:]) + area(b[..., :2], b[..., 2:]) - inner
    hull = area(ops.minimum(a[..., :2], b[..., :2]), ops.maximum(a[..., 2:], b[..., 2:]))
    return inner / union - (hull - union) / hull


def loss(outputs, targets):
    """Targets: class and box (center, size) in sixteenths; object i belongs to query i."""
    objects = targets.shape[1]
    goal_class = targets[..., 0].astype(ms.int32)
    goal_box = targets[..., 1:].astype(ms.float32) / 16
    weight = Tensor([1.0] * CLASSES + [0.1], ms.float32)
    total = 0
    for scores, boxes in zip(*outputs):
        b, n, classes = scores.shape
        empty = ops.full((b, n - objects), CLASSES, dtype=ms.int32)
        labels = ops.cat([goal_class, empty], axis=1).reshape(-1)
        ce = ops.cross_entropy(scores.reshape(-1, classes), labels, weight=weight)
        count = b * objects
        found = boxes[:, :objects]
        l1 = ops.abs(found - goal_box).sum() / count
        giou = (1 - generalized_iou(corners(found), corners(goal_box))).sum() / count
        total = total + ce + 5 * l1 + 2 * giou
    return total
