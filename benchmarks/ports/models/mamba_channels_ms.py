"""Mamba with the time axis first, weights stored as (in, out), and one large cell for the whole network."""

import mindspore as ms
import numpy as np
from mindspore import Parameter, Tensor, nn, ops
from mindspore.common.initializer import One, Uniform, initializer


class Matrix(nn.Cell):
    """x @ w + b with w of shape (in, out)."""

    def __init__(self, rows, cols, bias=False):
        super().__init__()
        self.w = Parameter(initializer(Uniform(0.1), (rows, cols), ms.float32))
        self.b = Parameter(initializer("zeros", (cols,), ms.float32)) if bias else None

    def construct(self, x):
        y = ops.matmul(x, self.w)
        return y if self.b is None else y + self.b


class SelectiveStateSpace(nn.Cell):
    """Works on (time, batch, channel); the state is (batch, state, channel)."""

    def __init__(self, channels, states, rank):
        super().__init__()
        self.sizes = (rank, rank + states, rank + 2 * states)
        self.select = Matrix(channels, rank + 2 * states)
        self.widen = Matrix(rank, channels, bias=True)
        rate = np.arange(1, states + 1).repeat(channels).reshape(states, channels)
        self.log_rate = Parameter(Tensor(np.log(rate), ms.float32))
        self.direct = Parameter(initializer(One(), (channels,), ms.float32))

    def one_step(self, state, u, delta, b, c):
        kept = ops.exp(-ops.exp(self.log_rate) * delta.unsqueeze(1))
        added = ops.bmm(b.unsqueeze(2), (delta * u).unsqueeze(1))
        state = state * kept + added
        out = ops.bmm(c.unsqueeze(1), state).squeeze(1)
        return state, out + self.direct * u

    def construct(self, u):
        r, rb, rbc = self.sizes
        selected = self.select(u)
        delta = ops.softplus(self.widen(selected[..., :r]))
        state = ops.zeros((u.shape[1],) + tuple(self.log_rate.shape))
        out = ()
        for t in range(u.shape[0]):
            state, y = self.one_step(state, u[t], delta[t], selected[t, :, r:rb], selected[t, :, rb:rbc])
            out += (y,)
        return ops.stack(out, 0)


class Net(nn.Cell):
    def __init__(self, vocabulary=20, width=16, depth=2, expand=2, states=4, rank=3, taps=4):
        super().__init__()
        inner = expand * width
        self.depth, self.taps, self.inner = depth, taps, inner
        self.tokens = Parameter(initializer(Uniform(0.1), (vocabulary, width), ms.float32))
        self.gains = ms.ParameterTuple(
            [Parameter(initializer(One(), (width,), ms.float32), name=f"gain{i}") for i in range(depth + 1)]
        )
        self.inward = nn.CellList([Matrix(width, 2 * inner) for _ in range(depth)])
        self.filters = nn.CellList(
            [nn.Conv1d(inner, inner, taps, pad_mode="valid", group=inner, has_bias=True) for _ in range(depth)]
        )
        self.spaces = nn.CellList([SelectiveStateSpace(inner, states, rank) for _ in range(depth)])
        self.outward = nn.CellList([Matrix(inner, width) for _ in range(depth)])

    def normalise(self, x, i):
        length = ops.sqrt((x**2).sum(-1, keepdims=True) / x.shape[-1] + 1e-5)
        return x / length * self.gains[i]

    def construct(self, ids):
        x = self.tokens[ids.T]
        for i in range(self.depth):
            both = self.inward[i](self.normalise(x, i))
            signal, gate = both[..., : self.inner], both[..., self.inner :]
            signal = ops.pad(signal.permute(1, 2, 0), (self.taps - 1, 0))
            signal = ops.silu(self.filters[i](signal)).permute(2, 0, 1)
            y = ops.silu(gate) * self.spaces[i](signal)
            x = self.outward[i](y) + x
        x = self.normalise(x, self.depth)
        return ops.matmul(x.transpose(1, 0, 2), self.tokens.T)


def loss(logits, targets):
    logits = ops.transpose(logits[:, :-1], (0, 2, 1))
    return ops.cross_entropy(logits, targets[:, 1:].astype(ms.int32), ignore_index=0)


class Trainer(nn.Optimizer):
    def __init__(self, parameters):
        super().__init__(0.02, parameters)
        self.memory = [[ops.zeros_like(p), ops.zeros_like(p)] for p in parameters]
        self.step = 0

    def schedule(self):
        return 0.02 if self.step >= 3 else 0.02 * self.step / 3

    def construct(self, grads):
        self.step += 1
        lr = self.schedule()
        grads = ops.clip_by_global_norm(tuple(grads), 0.5)
        for p, g, pair in zip(self.parameters, grads, self.memory):
            pair[0] = 0.9 * pair[0] + 0.1 * g
            pair[1] = 0.95 * pair[1] + 0.05 * ops.pow(g, 2)
            m = pair[0] / (1 - 0.9**self.step)
            v = pair[1] / (1 - 0.95**self.step)
            new = p - lr * m / (v**0.5 + 1e-8)
            if p.ndim >= 2 and "log_rate" not in p.name:
                new = new - lr * 0.2 * p
            ops.assign(p, new)
        return True


def optimizer(parameters):
    return Trainer(list(parameters))
