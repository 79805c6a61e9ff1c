"""Keypoint hourglass; channels last between the blocks, 1x1 convolutions as dense layers, one joint at a time in the loss."""

import mindspore as ms
from mindspore import nn, ops


class Norm(nn.Cell):
    """Batch norm of a tensor with channels last."""

    def __init__(self, c):
        super().__init__()
        self.flat = nn.BatchNorm1d(c, eps=1e-5, momentum=0.9)

    def construct(self, x):
        return self.flat(x.reshape(-1, x.shape[-1])).reshape(x.shape)


class Conv(nn.Cell):
    """3x3 convolution of a tensor with channels last; the border is padded by hand."""

    def __init__(self, c_in, c_out, stride=1):
        super().__init__()
        self.kernel = nn.Conv2d(c_in, c_out, 3, stride, pad_mode="valid", has_bias=False)

    def construct(self, x):
        x = ops.pad(x.transpose(0, 3, 1, 2), (1, 1, 1, 1))
        return self.kernel(x).transpose(0, 2, 3, 1)


class Unit(nn.SequentialCell):
    def __init__(self, c_in, c_out):
        super().__init__(Norm(c_in), nn.ReLU(), Conv(c_in, c_out), Norm(c_out), nn.ReLU(), Conv(c_out, c_out))


class Plus(nn.Cell):
    def __init__(self, c):
        super().__init__()
        self.body = Unit(c, c)

    def construct(self, x):
        return self.body(x) + x


class Pyramid(nn.Cell):
    """Hourglass from the inside to the outside."""

    def __init__(self, inner, c):
        super().__init__()
        self.beside = Plus(c)
        self.below = nn.SequentialCell(Plus(c), inner)

    def construct(self, x):
        small = ops.max_pool2d(x.transpose(0, 3, 1, 2), 2, 2).transpose(0, 2, 3, 1)
        y = self.below(small)
        b, h, w, c = y.shape
        y = ops.broadcast_to(y.reshape(b, h, 1, w, 1, c), (b, h, 2, w, 2, c)).reshape(b, 2 * h, 2 * w, c)
        return y + self.beside(x)


class Net(nn.Cell):
    def __init__(self):
        super().__init__()
        self.start = nn.SequentialCell(Conv(3, 8, 2), Norm(8), nn.ReLU())
        self.widen = Unit(8, 12)
        self.widen_short = nn.Dense(8, 12, has_bias=False)
        self.pyramid = Pyramid(Pyramid(Plus(12), 12), 12)
        self.features = nn.SequentialCell(nn.Dense(12, 12, has_bias=False), Norm(12), nn.ReLU())
        self.maps = nn.Dense(12, 6)
        self.feedback = nn.Dense(18, 12, has_bias=False)
        self.second = nn.SequentialCell(Plus(12), nn.Dense(12, 12, has_bias=False), Norm(12), nn.ReLU(), nn.Dense(12, 6))

    def construct(self, images):
        x = self.start(images.transpose(0, 2, 3, 1))
        x = self.widen(x) + self.widen_short(x)
        f = self.features(self.pyramid(x))
        a = self.maps(f)
        b = self.second(x + self.feedback(ops.cat((f, a), -1)))
        return a.transpose(0, 3, 1, 2), b.transpose(0, 3, 1, 2), self.centre(b)

    def centre(self, maps):
        n, h, w, j = maps.shape
        p = ops.exp(ops.log_softmax(4.0 * maps.reshape(n, h * w, j), 1)).reshape(n, h, w, j)
        x, y = 0.0, 0.0
        for i in range(w):
            x = x + p[:, :, i].sum(axis=1) * (2 * i / (w - 1) - 1)
        for i in range(h):
            y = y + p[:, i].sum(axis=1) * (2 * i / (h - 1) - 1)
        return ops.stack((x, y), 2)


def error(heat, x, y):
    row = ops.arange(16).astype(ms.float32)
    d2 = (row.reshape(1, 16, 1) - y.reshape(-1, 1, 1)) ** 2 + (row.reshape(1, 1, 16) - x.reshape(-1, 1, 1)) ** 2
    return ((heat - ops.exp(-d2 / 4.5)) ** 2).reshape(heat.shape[0], -1).mean(axis=1)


def loss(outputs, targets):
    first, second, coords = outputs
    t = targets.float()
    batch, joints = t.shape[:2]
    w = t[:, :, 2] / 31
    w = ops.masked_fill(w, t[:, :, 2] < 8, 0.0)
    easy, hard, near = 0.0, [], 0.0
    for j in range(joints):
        x, y = t[:, j, 0] / 2, t[:, j, 1] / 2
        easy = easy + (w[:, j] * error(first[:, j], x, y)).sum() / (batch * joints)
        hard.append(w[:, j] * error(second[:, j], x, y))
        for k, goal in enumerate((x, y)):
            gap = ops.smooth_l1_loss(coords[:, j, k], goal / 7.5 - 1, beta=0.2, reduction="none")
            near = near + (w[:, j] * gap).sum()
    hard = ops.stack(hard, 1)
    for b in range(batch):
        easy = easy + ops.topk(hard[b], 3)[0].sum() / (3 * batch)
    return easy + 0.25 * near / (w.sum() + 1e-6)


class Centred(nn.Optimizer):
    def __init__(self, parameters, lr=2e-3):
        super().__init__(lr, parameters)
        self.states = []
        for p in self.parameters:
            self.states.append({"v": ops.zeros_like(p), "m": ops.zeros_like(p), "b": ops.zeros_like(p)})

    def construct(self, grads):
        for p, g, s in zip(self.parameters, grads, self.states):
            g = ops.add(g, ops.mul(p, 1e-3))
            s["v"] = ops.lerp(s["v"], ops.square(g), 0.1)
            s["m"] = ops.lerp(s["m"], g, 0.1)
            root = ops.sqrt(ops.sub(s["v"], ops.square(s["m"])))
            s["b"] = ops.add(ops.mul(s["b"], 0.9), ops.div(g, ops.add(root, 1e-3)))
            ops.assign_sub(p, ops.mul(s["b"], 2e-3))
        return True


def optimizer(parameters):
    return Centred(parameters)
