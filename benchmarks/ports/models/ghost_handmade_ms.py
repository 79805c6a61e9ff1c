"""The mobile network with handmade normalisation, shuffling and optimizer."""

import math

import numpy as np
import mindspore as ms
from mindspore import Parameter, Tensor, nn, ops
from mindspore.common.initializer import HeUniform, initializer


class Kernel(nn.Cell):
    """A bare convolution; a grouped one runs group by group."""

    def __init__(self, cin, cout, k=1, stride=1, groups=1):
        super().__init__()
        self.k, self.stride, self.groups = k, stride, groups
        self.kernel = Parameter(initializer(HeUniform(), (cout, cin // groups, k, k), ms.float32), name="kernel")

    def construct(self, x):
        if self.groups in (1, x.shape[1]):
            return ops.conv2d(x, self.kernel, None, self.stride, "pad", self.k // 2, 1, self.groups)
        xs = ops.chunk(x, self.groups, 1)
        ws = ops.chunk(self.kernel, self.groups, 0)
        return ops.cat([ops.conv2d(a, b, stride=self.stride) for a, b in zip(xs, ws)], 1)


class Norm(nn.Cell):
    """Batch norm from its formula, with the running values of the unbiased variance."""

    def __init__(self, c):
        super().__init__()
        self.scale = Parameter(Tensor(np.ones(c), ms.float32), name="scale")
        self.shift = Parameter(Tensor(np.zeros(c), ms.float32), name="shift")
        self.mean = Parameter(Tensor(np.zeros(c), ms.float32), name="mean", requires_grad=False)
        self.var = Parameter(Tensor(np.ones(c), ms.float32), name="var", requires_grad=False)

    def construct(self, x):
        if self.training:
            n = x.shape[0] * x.shape[2] * x.shape[3]
            mean = x.mean((0, 2, 3))
            centred = x - mean.reshape(1, -1, 1, 1)
            var = (centred * centred).mean((0, 2, 3))
            ops.assign(self.mean, ops.stop_gradient(0.99 * self.mean + 0.01 * mean))
            ops.assign(self.var, ops.stop_gradient(0.99 * self.var + 0.01 * var * (n / (n - 1))))
        else:
            var = self.var
            centred = x - self.mean.reshape(1, -1, 1, 1)
        factor = self.scale * ops.rsqrt(var + 1e-5)
        return centred * factor.reshape(1, -1, 1, 1) + self.shift.reshape(1, -1, 1, 1)


def hard_sigmoid(x):
    return ops.clamp(x / 6 + 0.5, 0.0, 1.0)


class Gate(nn.Cell):
    """Squeeze and excite with dense layers."""

    def __init__(self, c, r):
        super().__init__()
        self.down = nn.Dense(c, r)
        self.up = nn.Dense(r, c)

    def construct(self, x):
        s = self.up(ops.relu(self.down(x.mean((2, 3)))))
        return ops.mul(x, hard_sigmoid(s)[:, :, None, None])


class Ghost(nn.Cell):
    def __init__(self, cin, cout, active):
        super().__init__()
        half = (cout + 1) // 2
        self.active, self.rest = active, cout - half
        self.point = Kernel(cin, half)
        self.point_norm = Norm(half)
        self.depth = Kernel(half, half, 3, groups=half)
        self.depth_norm = Norm(half)

    def construct(self, x):
        a = self.point_norm(self.point(x))
        if self.active:
            a = ops.relu(a)
        b = self.depth_norm(self.depth(a))
        if self.active:
            b = ops.relu(b)
        return ops.cat((a, b[:, : self.rest]), 1)


class Shuffle(nn.Cell):
    """The channels are shuffled by an index."""

    def __init__(self, cin, mid, cout, groups, stride=1):
        super().__init__()
        self.stride = stride
        self.a = Kernel(cin, mid, groups=groups)
        self.na = Norm(mid)
        self.b = Kernel(mid, mid, 3, stride, groups=mid)
        self.nb = Norm(mid)
        self.c = Kernel(mid, cout, groups=groups)
        self.nc = Norm(cout)
        index = [g * (mid // groups) + i for i in range(mid // groups) for g in range(groups)]
        self.index = Tensor(index, ms.int32)

    def construct(self, x):
        y = ops.relu(self.na(self.a(x)))
        y = self.nb(self.b(ops.gather(y, self.index, 1)))
        y = self.nc(self.c(y))
        if self.stride == 1:
            return ops.relu(y + x)
        pooled = ops.avg_pool2d(x, 3, 2, 1)
        return ops.cat((ops.relu(pooled), ops.relu(y)), 1)


class Net(nn.Cell):
    def __init__(self):
        super().__init__()
        self.c0, self.n0 = Kernel(3, 8, 3, 2), Norm(8)
        self.g1, self.s1, self.g2 = Ghost(8, 16, True), Gate(16, 6), Ghost(16, 8, False)
        self.u1 = Shuffle(8, 8, 16, 2, 2)
        self.g3, self.s2, self.g4 = Ghost(24, 25, True), Gate(25, 6), Ghost(25, 24, False)
        self.u2 = Shuffle(24, 12, 24, 3)
        self.hidden = nn.Dense(24, 32)
        self.logits = nn.Dense(32, 7)

    def construct(self, image):
        x = self.n0(self.c0(image))
        x = x * hard_sigmoid(x)
        x = x + self.g2(self.s1(self.g1(x)))
        x = self.u1(x)
        x = x + self.g4(self.s2(self.g3(x)))
        x = self.u2(x)
        x = self.hidden(x.mean((2, 3)))
        return self.logits(x * hard_sigmoid(x))


def loss(outputs, targets):
    """Cross entropy against smoothed one-hot labels."""
    classes = outputs.shape[1]
    hot = ops.one_hot(targets.astype(ms.int32), classes, Tensor(1.0, ms.float32), Tensor(0.0, ms.float32))
    soft = hot * 0.9 + 0.1 / classes
    logp = outputs - ops.logsumexp(outputs, 1, True)
    return -(soft * logp).sum() / outputs.shape[0]


class SGD(nn.Optimizer):
    """Heavy ball with a warm-up and half a cosine."""

    def __init__(self, params, peak=0.2, mu=0.9, decay=0.02):
        super().__init__(peak, params)
        self.peak, self.mu = peak, mu
        self.velocity = [ms.Tensor(np.zeros(p.shape), ms.float32) for p in self.parameters]
        self.decays = [decay if len(p.shape) > 1 else 0.0 for p in self.parameters]
        self.t = 0

    def rate(self):
        if self.t < 2:
            return self.peak * min(1.0, self.t / 2)
        return self.peak * math.cos(math.pi / 2 * (self.t - 2) / 4) ** 2

    def construct(self, grads):
        self.t += 1
        lr = self.rate()
        for i, (p, g) in enumerate(zip(self.parameters, grads)):
            self.velocity[i] = self.mu * self.velocity[i] + g + self.decays[i] * p
            ops.assign(p, p - lr * self.velocity[i])
        return True


def optimizer(parameters):
    return SGD(list(parameters))
