"""The small diffusion model as functions over one cell's parameters, the group norm written out."""

import mindspore as ms
import numpy as np
from mindspore import Parameter, ParameterTuple, Tensor, mint, nn, ops

BAR = np.cumprod(1 - np.linspace(0.001, 0.1, 40))
SHAPES = {
    "t1": (32, 16), "t2": (32, 32), "in": (8, 3, 3, 3), "half": (16, 8, 3, 3), "end": (3, 8, 3, 3),
    "a.n1": 8, "a.c1": (8, 8, 3, 3), "a.f": (16, 32), "a.n2": 8, "a.c2": (8, 8, 3, 3),
    "b.n1": 16, "b.c1": (16, 16, 3, 3), "b.f": (32, 32), "b.n2": 16, "b.c2": (16, 16, 3, 3),
    "c.n1": 24, "c.c1": (8, 24, 3, 3), "c.f": (16, 32), "c.n2": 8, "c.c2": (8, 8, 3, 3), "c.s": (8, 24, 1, 1),
    "n": 8,
}


def swish(x):
    """x times its sigmoid."""
    return x * mint.sigmoid(x)


class Net(nn.Cell):
    """All weights in one tuple."""

    def __init__(self):
        super().__init__()
        weights = []
        self.place = {}
        for name, shape in SHAPES.items():
            shape = shape if isinstance(shape, tuple) else (shape,)
            self.place[name] = len(weights)
            name = name.replace(".", "_")
            weights.append(Parameter(Tensor(0.1 * np.random.randn(*shape), ms.float32), name=f"w_{name}"))
            weights.append(Parameter(Tensor(np.zeros(shape[0]), ms.float32), name=f"b_{name}"))
        self.weights = ParameterTuple(weights)
        self.signal = Tensor(np.sqrt(BAR), ms.float32)
        self.noise = Tensor(np.sqrt(1 - BAR), ms.float32)
        self.waves = Tensor(10000 ** (-np.arange(8) / 8), ms.float32)

    def get(self, name):
        i = self.place[name]
        return self.weights[i], self.weights[i + 1]

    def dense(self, name, x):
        w, b = self.get(name)
        return mint.matmul(x, w.T) + b

    def conv(self, name, x, mode="same", stride=1):
        w, b = self.get(name)
        return ops.conv2d(x, w, b, stride=stride, pad_mode=mode)

    def group(self, name, x):
        w, b = self.get(name)
        n, c, height, width = x.shape
        g = x.reshape(n, 4, -1)
        g = g - mint.mean(g, 2, keepdim=True)
        g = g * ops.rsqrt(mint.mean(g * g, 2, keepdim=True) + 1e-5)
        return g.reshape(n, c, height, width) * w.reshape(1, c, 1, 1) + b.reshape(1, c, 1, 1)

    def block(self, name, x, time):
        h = self.group(f"{name}.n2", self.conv(f"{name}.c1", swish(self.group(f"{name}.n1", x))))
        film = self.dense(f"{name}.f", time).reshape(x.shape[0], 2, -1, 1, 1)
        h = self.conv(f"{name}.c2", swish(h + h * film[:, 0] + film[:, 1]))
        return h + (self.conv(f"{name}.s", x) if f"{name}.s" in self.place else x)

    def construct(self, x0, eps, t):
        s = self.signal[t].reshape(-1, 1, 1, 1)
        n = self.noise[t].reshape(-1, 1, 1, 1)
        wave = t.astype(ms.float32).reshape(-1, 1) * self.waves
        time = self.dense("t1", mint.cat([mint.cos(wave), mint.sin(wave)], 1))
        time = swish(self.dense("t2", swish(time)))
        high = self.block("a", self.conv("in", s * x0 + n * eps), time)
        low = self.conv("half", high, "same", 2)
        low = self.block("b", low, time).repeat_interleave(2, 2).repeat_interleave(2, 3)
        y = self.block("c", mint.cat((low, high), 1), time)
        y = self.conv("end", swish(self.group("n", y)))
        return y, s * eps - n * x0, mint.square(s / n).reshape(-1)


def loss(outputs, targets):
    """Mean over samples of the weighted mean over chosen pixels."""
    y, v, ratio = outputs
    total = 0
    for i in range(y.shape[0]):
        chosen = targets[i].astype(ms.float32)
        error = mint.sum(mint.mean(mint.square(y[i] - v[i]), 0) * chosen) / mint.sum(chosen)
        total = total + error * mint.clamp(ratio[i], 0.0, 5.0) / (1 + ratio[i])
    return total / y.shape[0]


class Slow(nn.Optimizer):
    """Steps of AdamW with the corrections in the rate."""

    def __init__(self, params):
        super().__init__(0.01, params)
        self.n = 0
        self.back = [p.asnumpy().copy() for p in params]
        self.one = [ops.zeros_like(p) for p in params]
        self.two = [ops.zeros_like(p) for p in params]

    def construct(self, gradients):
        self.n += 1
        rate = 0.01 * (1, 2, 3)[min(self.n, 3) - 1] / 3
        fix = (1 - 0.95**self.n) ** 0.5
        for i, (p, g) in enumerate(zip(self.parameters, gradients)):
            self.one[i] = self.one[i] + 0.1 * (g - self.one[i])
            self.two[i] = self.two[i] + 0.05 * (g * g - self.two[i])
            step = self.one[i] / (mint.sqrt(self.two[i]) + 1e-6 * fix) * (fix / (1 - 0.9**self.n))
            if len(p.shape) >= 2:
                step = step + 0.2 * p
            p.set_data(p - rate * step)
            if self.n % 2 == 0:
                self.back[i] = 0.6 * self.back[i] + 0.4 * p.asnumpy()
                p.set_data(Tensor(self.back[i], ms.float32))
        return True


def optimizer(parameters):
    return Slow(list(parameters))
