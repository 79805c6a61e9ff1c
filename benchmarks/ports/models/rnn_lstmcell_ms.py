"""A hand-written LSTM cell with layer norm on the cell state, unrolled in a loop."""

import mindspore as ms
import numpy as np
from mindspore import Parameter, Tensor, nn, ops


def uniform(*shape):
    return Tensor(np.random.uniform(-0.4, 0.4, shape), ms.float32)


class LSTMCell(nn.Cell):
    def __init__(self, input_size, hidden_size):
        super().__init__()
        self.hidden_size = hidden_size
        self.weight_x = Parameter(uniform(4 * hidden_size, input_size))
        self.weight_h = Parameter(uniform(4 * hidden_size, hidden_size))
        self.bias = Parameter(uniform(4 * hidden_size))
        self.ln_gain = Parameter(ops.ones((hidden_size,), ms.float32))
        self.ln_shift = Parameter(ops.zeros((hidden_size,), ms.float32))

    def layer_norm(self, c):
        mean = c.mean(-1, keep_dims=True)
        std = ops.sqrt(ops.square(c - mean).mean(-1, keep_dims=True))
        return self.ln_gain * (c - mean) / (std + 1e-3) + self.ln_shift

    def construct(self, x, state):
        h, c = state
        gates = ops.matmul(x, self.weight_x.T) + ops.matmul(h, self.weight_h.T) + self.bias
        i, f, g, o = ops.chunk(gates, 4, axis=1)
        c = ops.sigmoid(f + 1.0) * c + ops.sigmoid(i) * ops.tanh(g)
        h = ops.sigmoid(o) * ops.tanh(self.layer_norm(c))
        return h, c


class Net(nn.Cell):
    def __init__(self, input_size=5, hidden_size=8, outputs=3):
        super().__init__()
        self.cell = LSTMCell(input_size, hidden_size)
        self.fc = nn.Dense(hidden_size, outputs)

    def construct(self, x):
        b, t, _ = x.shape
        h = ops.zeros((b, self.cell.hidden_size), ms.float32)
        c = ops.zeros((b, self.cell.hidden_size), ms.float32)
        outputs = []
        for step in range(t):
            h, c = self.cell(x[:, step], (h, c))
            outputs.append(self.fc(h))
        return ops.stack(outputs, axis=1)


class AdamW(nn.Optimizer):
    """Adam with decoupled decay of the matrices, as in PyTorch."""

    def __init__(self, params, lr, betas, eps, weight_decay):
        super().__init__(lr, params)
        self.b1, self.b2 = betas
        self.eps, self.wd = eps, weight_decay
        self.m = self.parameters.clone(prefix="m", init="zeros")
        self.v = self.parameters.clone(prefix="v", init="zeros")
        self.t = 0

    def construct(self, gradients):
        lr = self.get_lr()
        self.t += 1
        for p, g, m, v in zip(self.parameters, gradients, self.m, self.v):
            decay = self.wd if p.ndim == 2 else 0.0
            m_new = self.b1 * m + (1 - self.b1) * g
            v_new = self.b2 * v + (1 - self.b2) * g * g
            m_hat = m_new / (1 - self.b1**self.t)
            v_hat = v_new / (1 - self.b2**self.t)
            new = p * (1 - lr * decay) - lr * m_hat / (ops.sqrt(v_hat) + self.eps)
            ops.assign(m, m_new)
            ops.assign(v, v_new)
            ops.assign(p, new)
        return True


def optimizer(parameters):
    return AdamW(parameters, 0.01, betas=(0.9, 0.98), eps=1e-3, weight_decay=0.5)
