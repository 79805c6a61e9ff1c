"""Masked autoencoder whose patches are chosen and put back by products with one-hot matrices."""

import mindspore as ms
import numpy as np
from mindspore import Parameter, Tensor, mint, nn, ops


def patches(x):
    """Each image cut into rows and columns of four pixels."""
    b = x.shape[0]
    x = mint.permute(x, (0, 2, 3, 1)).reshape(b, 4, 4, 4, 12)
    return mint.permute(x, (0, 1, 3, 2, 4)).reshape(b, 16, 48)


def places(d):
    table = np.zeros((17, d), np.float32)
    q = d // 4
    for i in range(16):
        for j in range(q):
            rate = 10000.0 ** (j / q)
            for part, at in enumerate((i // 4, i % 4)):
                table[i + 1, 2 * q * part + j] = np.sin(at / rate)
                table[i + 1, 2 * q * part + q + j] = np.cos(at / rate)
    return Tensor(table)


class Layer(nn.Cell):
    """Attention and feed-forward in one cell."""

    def __init__(self, d, heads):
        super().__init__()
        self.heads = heads
        self.ln_a = nn.LayerNorm([d], epsilon=1e-6)
        self.mix_in = nn.Dense(d, 3 * d, has_bias=False)
        self.mix_out = nn.Dense(d, d)
        self.ln_b = nn.LayerNorm([d], epsilon=1e-6)
        self.wide = nn.Dense(d, 2 * d)
        self.narrow = nn.Dense(2 * d, d)

    def construct(self, x):
        b, n, d = x.shape
        parts = mint.chunk(self.mix_in(self.ln_a(x)), 3, dim=-1)
        q, k, v = [mint.permute(p.reshape(b, n, self.heads, -1), (0, 2, 1, 3)) for p in parts]
        w = mint.matmul(q * (d / self.heads) ** -0.5, mint.permute(k, (0, 1, 3, 2)))
        y = mint.matmul(mint.softmax(w, dim=-1), v)
        x = x + self.mix_out(mint.permute(y, (0, 2, 1, 3)).reshape(b, n, d))
        h = self.wide(self.ln_b(x))
        h = h * (1 + mint.erf(h / 2**0.5)) / 2
        return x + self.narrow(h)


class Net(nn.Cell):
    def __init__(self, d=24, small=16):
        super().__init__()
        self.pixels_in = nn.Dense(48, d)
        self.first = Parameter(Tensor(np.random.randn(1, 1, d) * 0.1, ms.float32), name="first")
        self.blank = Parameter(Tensor(np.random.randn(1, 1, small) * 0.1, ms.float32), name="blank")
        self.layer0 = Layer(d, 2)
        self.layer1 = Layer(d, 2)
        self.ln = nn.LayerNorm([d], epsilon=1e-6)
        self.bridge = nn.Dense(d, small)
        self.layer2 = Layer(small, 2)
        self.ln_out = nn.LayerNorm([small], epsilon=1e-6)
        self.pixels_out = nn.Dense(small, 48)
        self.place, self.place_out = places(d), places(small)

    def construct(self, images, order):
        b = images.shape[0]
        hot = (order[:, :6, None] == ops.arange(16)).astype(ms.float32)
        x = mint.matmul(hot, self.pixels_in(patches(images)) + self.place[1:])
        x = mint.cat([mint.broadcast_to(self.first, (b, 1, -1)), x], dim=1)
        x = self.bridge(self.ln(self.layer1(self.layer0(x))))
        back = mint.permute(hot, (0, 2, 1))
        mask = 1 - mint.sum(back, dim=-1)
        y = mint.matmul(back, x[:, 1:]) + mask[:, :, None] * self.blank
        y = mint.cat([x[:, :1], y], dim=1) + self.place_out
        y = self.ln_out(self.layer2(y))
        return self.pixels_out(y[:, 1:]), mask


def loss(outputs, targets):
    y, mask = outputs
    goal = patches(targets)
    goal = goal - mint.mean(goal, -1, keepdim=True)
    goal = goal * mint.rsqrt(mint.sum(goal * goal, -1, keepdim=True) / 47 + 1e-6)
    weight = (mask / mint.sum(mask))[:, :, None] / 48
    return mint.sum(weight * mint.square(y - goal))


class WarmAdam(nn.Optimizer):
    """The corrections are put into the rate and the epsilon."""

    def __init__(self, parameters):
        matrices = [p for p in parameters if len(p.shape) > 1]
        vectors = [p for p in parameters if len(p.shape) == 1]
        groups = [{"params": matrices}, {"params": vectors}, {"order_params": parameters}]
        super().__init__(0.02, groups)
        self.mean = [mint.zeros(p.shape) for p in self.parameters]
        self.square = [mint.zeros(p.shape) for p in self.parameters]
        self.done = 0

    def construct(self, gradients):
        self.done += 1
        t = self.done
        lr = 0.005 * min(t, 4)
        rate = lr * (1 - 0.95**t) ** 0.5 / (1 - 0.9**t)
        eps = 1e-6 * (1 - 0.95**t) ** 0.5
        for i, (p, g) in enumerate(zip(self.parameters, gradients)):
            self.mean[i] = self.mean[i] + 0.1 * (g - self.mean[i])
            self.square[i] = self.square[i] + 0.05 * (g * g - self.square[i])
            change = rate * self.mean[i] / (mint.sqrt(self.square[i]) + eps)
            if len(p.shape) > 1:
                change = change + 0.3 * lr * p
            p.set_data(p - change)
        return True


def optimizer(parameters):
    return WarmAdam(list(parameters))
