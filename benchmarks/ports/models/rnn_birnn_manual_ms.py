"""The bidirectional classifier with both directions written as loops."""

import numpy as np
from mindspore import Parameter, Tensor, nn, ops


def param(*shape):
    return Parameter(Tensor(np.random.uniform(-0.3, 0.3, shape).astype(np.float32)))


class Direction(nn.Cell):
    """One direction of an RNN or a GRU over (B, T, C)."""

    def __init__(self, size, hidden, gates, reverse):
        super().__init__()
        self.w_ih = param(gates * hidden, size)
        self.w_hh = param(gates * hidden, hidden)
        self.b_ih = param(gates * hidden)
        self.b_hh = param(gates * hidden)
        self.hidden, self.gates, self.reverse = hidden, gates, reverse

    def step(self, x, h):
        a = ops.matmul(x, self.w_ih.T) + self.b_ih
        b = ops.matmul(h, self.w_hh.T) + self.b_hh
        if self.gates == 1:
            return ops.tanh(a + b)
        n = self.hidden
        r = ops.sigmoid(a[:, :n] + b[:, :n])
        z = ops.sigmoid(a[:, n : 2 * n] + b[:, n : 2 * n])
        new = ops.tanh(a[:, 2 * n :] + r * b[:, 2 * n :])
        return (1 - z) * new + z * h

    def construct(self, x):
        steps = list(range(x.shape[1]))
        if self.reverse:
            steps = steps[::-1]
        h = ops.zeros((x.shape[0], self.hidden))
        states = {}
        for t in steps:
            h = self.step(x[:, t], h)
            states[t] = h
        return ops.stack([states[t] for t in sorted(states)], 1), h


class Net(nn.Cell):
    def __init__(self):
        super().__init__()
        self.table = param(18, 6)
        self.rnn_fw = Direction(6, 7, 1, False)
        self.rnn_bw = Direction(6, 7, 1, True)
        self.gru_fw = Direction(14, 7, 3, False)
        self.gru_bw = Direction(14, 7, 3, True)
        self.ln = nn.LayerNorm([14], epsilon=1e-5)
        self.out = nn.Dense(14, 4)

    def construct(self, tokens):
        x = self.table[tokens]
        x = ops.cat((self.rnn_fw(x)[0], self.rnn_bw(x)[0]), -1)
        x = self.ln(x)
        h = ops.cat((self.gru_fw(x)[1], self.gru_bw(x)[1]), -1)
        return self.out(h)
