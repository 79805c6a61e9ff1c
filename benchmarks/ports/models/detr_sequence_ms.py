"""DETR with the sequence first, three projections for each attention, and mint where it runs."""

import mindspore as ms
import numpy as np
from mindspore import Tensor, mint, nn, ops


class Heads(nn.Cell):
    """Sequence, batch, features; heads and batch are one axis inside."""

    def __init__(self, d, n):
        super().__init__()
        self.n = n
        self.to_q = nn.Dense(d, d)
        self.to_k = nn.Dense(d, d)
        self.to_v = nn.Dense(d, d)
        self.project = nn.Dense(d, d)

    def construct(self, query, key, value, bias=0.0):
        t, b, d = query.shape
        size = d // self.n
        q = self.to_q(query).reshape(t, b * self.n, size) * size**-0.5
        k = self.to_k(key).reshape(-1, b * self.n, size)
        v = self.to_v(value).reshape(-1, b * self.n, size)
        scores = mint.bmm(mint.permute(q, (1, 0, 2)), mint.permute(k, (1, 2, 0)))
        scores = scores.reshape(b, self.n, t, -1) + bias
        weights = mint.softmax(scores, dim=-1).reshape(b * self.n, t, -1)
        y = mint.bmm(weights, mint.permute(v, (1, 0, 2)))
        return self.project(mint.permute(y, (1, 0, 2)).reshape(t, b, d))


class Block(nn.Cell):
    """An encoder's layer, or with cross attention a decoder's."""

    def __init__(self, d, n, hidden, cross):
        super().__init__()
        self.look = Heads(d, n)
        self.ln_look = nn.LayerNorm([d], epsilon=1e-5)
        if cross:
            self.read = Heads(d, n)
            self.ln_read = nn.LayerNorm([d], epsilon=1e-5)
        self.mlp = nn.SequentialCell(nn.Dense(d, hidden, activation="relu"), nn.Dense(hidden, d))
        self.ln_mlp = nn.LayerNorm([d], epsilon=1e-5)

    def construct(self, x, place, bias, memory=None, memory_place=None):
        q = mint.add(x, place)
        inside = 0.0 if memory is not None else bias
        x = self.ln_look(x + self.look(q, q, x, inside))
        if memory is not None:
            x = self.ln_read(x + self.read(x + place, memory + memory_place, memory, bias))
        return self.ln_mlp(x + self.mlp(x))


def wave(p, size):
    """Angles of half the features, each as sine and cosine beside one another."""
    rates = Tensor(100.0 ** (-np.arange(0, size, 2) / size), ms.float32)
    angle = p.expand_dims(-1) * rates
    both = mint.cat([mint.sin(angle)[..., None], mint.cos(angle)[..., None]], dim=-1)
    return both.reshape(p.shape + (size,))


class Net(nn.Cell):
    def __init__(self, d=24, n=3, hidden=40, slots=5, classes=8):
        super().__init__()
        self.d = d
        self.stem = nn.Conv2d(3, d, 4, 4, "valid", has_bias=True)
        self.enc = Block(d, n, hidden, False)
        self.dec = nn.CellList([Block(d, n, hidden, True), Block(d, n, hidden, True)])
        self.ln = nn.LayerNorm([d], epsilon=1e-5)
        self.slots = nn.Embedding(slots, d)
        self.label = nn.Dense(d, classes + 1)
        self.box_hidden = nn.Dense(d, d)
        self.box_out = nn.Dense(d, 4)

    def construct(self, images, widths):
        x = self.stem(images)
        b, d, h, w = x.shape
        tau = 2 * np.pi
        rows = Tensor((np.arange(h) + 1) / (h + 1e-6) * tau, ms.float32)
        column = Tensor(np.arange(w) + 1, ms.float32)[None]
        end = widths.astype(ms.float32)[:, None]
        free = column <= end
        columns = mint.minimum(column, end) / (end + 1e-6) * tau
        rows = mint.where(free[:, None], rows[None, :, None], 0.0)
        columns = mint.broadcast_to(columns[:, None], (b, h, w))
        place = mint.cat([wave(rows, d // 2), wave(columns, d // 2)], dim=-1)
        place = mint.permute(place.reshape(b, h * w, d), (1, 0, 2))
        bias = mint.where(free, 0.0, -1e9)
        bias = mint.broadcast_to(bias[:, None], (b, h, w)).reshape(b, 1, 1, h * w)
        memory = mint.permute(x, (2, 3, 0, 1)).reshape(h * w, b, d)
        memory = self.enc(memory, place, bias)
        slots = mint.broadcast_to(self.slots.embedding_table[:, None], (5, b, d))
        x = mint.zeros(slots.shape)
        results = []
        for block in self.dec:
            x = block(x, slots, bias, memory, place)
            results.append(mint.permute(self.ln(x), (1, 0, 2)))
        y = ops.stack(results, axis=0)
        box = self.box_out(mint.nn.functional.relu(self.box_hidden(y)))
        return self.label(y), mint.sigmoid(box)


def loss(outputs, targets):
    """Both layers at once: the sums over objects are divided by their number in one layer."""
    scores, boxes = outputs
    layers, b, slots, classes = scores.shape
    objects = targets.shape[1]
    log = mint.log(mint.softmax(scores, dim=-1))
    hot = (targets[:, :, :1] == ops.arange(classes)).astype(ms.float32)
    nll = -mint.sum(log[:, :, :objects] * hot) - 0.1 * mint.sum(log[:, :, objects:, -1])
    count = b * objects
    total = nll / (count + 0.1 * b * (slots - objects))
    goal = targets[None, :, :, 1:].astype(ms.float32) / 16
    mine = boxes[:, :, :objects]
    total = total + 5 * mint.sum(mint.abs(mine - goal)) / count
    ax0, ay0, ax1, ay1 = edges(mine)
    bx0, by0, bx1, by1 = edges(goal)
    zero = mint.zeros(ax0.shape)
    iw = mint.maximum(mint.minimum(ax1, bx1) - mint.maximum(ax0, bx0), zero)
    ih = mint.maximum(mint.minimum(ay1, by1) - mint.maximum(ay0, by0), zero)
    union = mine[..., 2] * mine[..., 3] + goal[..., 2] * goal[..., 3] - iw * ih
    hull = (mint.maximum(ax1, bx1) - mint.minimum(ax0, bx0)) * (
        mint.maximum(ay1, by1) - mint.minimum(ay0, by0)
    )
    return total + 2 * mint.sum(2 - iw * ih / union - union / hull) / count


def edges(box):
    x, y, w, h = (box[..., i] for i in range(4))
    return x - w / 2, y - h / 2, x + w / 2, y + h / 2
