"""Mamba by plain parameters and functions; the scan runs by doubling instead of step by step."""

import mindspore as ms
import numpy as np
from mindspore import Parameter, ParameterTuple, Tensor, nn, ops


def weight(name, *shape, scale=0.1):
    return Parameter(Tensor(np.random.uniform(-scale, scale, shape), ms.float32), name=name)


def rms(x, gain):
    scale = ops.sqrt((x * x).mean(axis=-1, keep_dims=True) + 1e-5)
    return gain * (x / scale)


def shift(x, n, fill):
    """x moved n steps later along the time axis, `fill` before it."""
    head = ops.full((x.shape[0], n) + tuple(x.shape[2:]), fill, dtype=x.dtype)
    return ops.cat((head, x[:, : x.shape[1] - n]), axis=1)


def linear_recurrence(a, b):
    """h[t] = a[t] h[t-1] + b[t] for all t at once, by recursive doubling."""
    n = 1
    while n < a.shape[1]:
        b = b + a * shift(b, n, 0.0)
        a = a * shift(a, n, 1.0)
        n *= 2
    return b


def causal_depthwise(x, kernel, bias):
    """x (batch, time, channel), kernel (channel, taps); the last tap is the present."""
    taps = kernel.shape[1]
    y = x * kernel[:, taps - 1] + bias
    for back in range(1, taps):
        y = y + shift(x, back, 0.0) * kernel[:, taps - 1 - back]
    return y


class Mixer(nn.Cell):
    def __init__(self, width, inner, states, rank, taps):
        super().__init__()
        self.gain = Parameter(Tensor(np.ones(width), ms.float32), name="gain")
        self.w_x = weight("w_x", inner, width)
        self.w_z = weight("w_z", inner, width)
        self.kernel = weight("kernel", inner, taps)
        self.kernel_bias = weight("kernel_bias", inner)
        self.w_dt_low = weight("w_dt_low", rank, inner)
        self.w_b = weight("w_b", states, inner)
        self.w_c = weight("w_c", states, inner)
        self.w_dt = weight("w_dt", inner, rank)
        self.dt_bias = weight("dt_bias", inner)
        rates = np.tile(np.arange(1.0, states + 1), (inner, 1))
        self.a_log = Parameter(Tensor(np.log(rates), ms.float32), name="a_log")
        self.skip = Parameter(Tensor(np.ones(inner), ms.float32), name="skip")
        self.w_out = weight("w_out", width, inner)

    def construct(self, x):
        n = rms(x, self.gain)
        gate = ops.matmul(n, self.w_z.T)
        u = causal_depthwise(ops.matmul(n, self.w_x.T), self.kernel, self.kernel_bias)
        u = u * ops.sigmoid(u)
        step = ops.matmul(ops.matmul(u, self.w_dt_low.T), self.w_dt.T) + self.dt_bias
        step = ops.log1p(ops.exp(step))
        into = ops.matmul(u, self.w_b.T)
        out = ops.matmul(u, self.w_c.T)
        decay = ops.exp(-step[..., None] * ops.exp(self.a_log))
        h = linear_recurrence(decay, (step * u)[..., None] * into[:, :, None, :])
        y = ops.matmul(h, out[..., None]).squeeze(-1) + self.skip * u
        y = y * gate * ops.sigmoid(gate)
        return x + ops.matmul(y, self.w_out.T)


class Net(nn.Cell):
    def __init__(self, words=20, width=16, depth=2, states=4, rank=3, taps=4):
        super().__init__()
        self.table = weight("table", words, width)
        self.mixers = nn.CellList([Mixer(width, 2 * width, states, rank, taps) for _ in range(depth)])
        self.gain = Parameter(Tensor(np.ones(width), ms.float32), name="gain")

    def construct(self, tokens):
        x = ops.gather(self.table, tokens, 0)
        for mixer in self.mixers:
            x = mixer(x)
        return ops.matmul(rms(x, self.gain), self.table.T)


def loss(logits, targets):
    here, following = logits[:, :-1], targets[:, 1:]
    words = logits.shape[-1]
    one_hot = (following[..., None] == ops.arange(words)).astype(ms.float32)
    picked = (here * one_hot).sum(axis=-1)
    nll = ops.logsumexp(here, -1) - picked
    return ops.where(following == 0, ops.zeros_like(nll), nll).sum() / (following != 0).astype(ms.float32).sum()


class Descent(nn.Optimizer):
    """Adam with decoupled decay, written with one effective step size for both bias corrections."""

    def __init__(self, params):
        super().__init__(0.02, params)
        self.first = ParameterTuple([Parameter(ops.zeros_like(p), name="first." + p.name) for p in params])
        self.second = ParameterTuple([Parameter(ops.zeros_like(p), name="second." + p.name) for p in params])
        self.count = 0

    def construct(self, grads):
        self.count += 1
        rate = 0.02 * min(self.count, 3) / 3
        norm = float(sum((g * g).sum() for g in grads) ** 0.5)
        factor = min(1.0, 0.5 / (norm + 1e-6))
        fix1, fix2 = 1 - 0.9**self.count, 1 - 0.95**self.count
        for p, g, m, v in zip(self.parameters, grads, self.first, self.second):
            g = factor * g
            m.set_data(m + 0.1 * (g - m))
            v.set_data(v + 0.05 * (g * g - v))
            change = m * (fix2**0.5 / fix1) / (ops.sqrt(v) + 1e-8 * fix2**0.5)
            if len(p.shape) > 1 and not p.name.endswith("a_log"):
                change = change + 0.2 * p
            p.set_data(p - rate * change)
        return True


def optimizer(parameters):
    return Descent(list(parameters))
