"""The LSTM with dense layers for the gates and the library's AdamW with groups."""

import mindspore as ms
from mindspore import Parameter, experimental, nn, ops


class CellNorm(nn.Cell):
    def __init__(self, n):
        super().__init__()
        self.gain = Parameter(ops.ones((1, n), ms.float32))
        self.shift = Parameter(ops.zeros((1, n), ms.float32))

    def construct(self, c):
        centered = c - c.mean(1, keep_dims=True)
        std = (centered * centered).mean(1, keep_dims=True).sqrt()
        return centered / (std + 0.001) * self.gain + self.shift


class Net(nn.Cell):
    def __init__(self, n_in=5, n_hidden=8, n_out=3):
        super().__init__()
        self.n_hidden = n_hidden
        self.x2g = nn.Dense(n_in, 4 * n_hidden, has_bias=False)
        self.h2g = nn.Dense(n_hidden, 4 * n_hidden)
        self.norm = CellNorm(n_hidden)
        self.readout = nn.Dense(n_hidden, n_out)

    def step(self, xg, h, c):
        n = self.n_hidden
        g = xg + self.h2g(h)
        keep = ops.sigmoid(g[:, n : 2 * n] + 1)
        c = c * keep + ops.sigmoid(g[:, :n]) * ops.tanh(g[:, 2 * n : 3 * n])
        return ops.tanh(self.norm(c)) * ops.sigmoid(g[:, 3 * n :]), c

    def construct(self, x):
        xg = self.x2g(x)
        h = ops.zeros((x.shape[0], self.n_hidden), ms.float32)
        c = ops.zeros_like(h)
        states = []
        for t in range(x.shape[1]):
            h, c = self.step(xg[:, t], h, c)
            states.append(h)
        return self.readout(ops.stack(states, 1))


def optimizer(parameters):
    plain = [p for p in parameters if "norm" in p.name or "bias" in p.name]
    decayed = [p for p in parameters if "norm" not in p.name and "bias" not in p.name]
    groups = [{"params": decayed, "weight_decay": 0.5}, {"params": plain, "weight_decay": 0.0}]
    return experimental.optim.AdamW(groups, lr=0.01, betas=(0.9, 0.98), eps=1e-3)
