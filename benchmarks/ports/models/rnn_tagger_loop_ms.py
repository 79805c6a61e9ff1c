"""The tagger with the LSTM written as a loop over the time steps."""

import numpy as np
from mindspore import Parameter, Tensor, nn, ops


def weights(*shape):
    return Tensor(np.random.uniform(-0.3, 0.3, shape).astype(np.float32))


class Layer(nn.Cell):
    def __init__(self, size, hidden):
        super().__init__()
        self.w_x = Parameter(weights(4 * hidden, size))
        self.w_h = Parameter(weights(4 * hidden, hidden))
        self.b_x = Parameter(weights(4 * hidden))
        self.b_h = Parameter(weights(4 * hidden))
        self.hidden = hidden

    def construct(self, x):
        h = ops.zeros((x.shape[0], self.hidden))
        c = h
        out = []
        for t in range(x.shape[1]):
            gates = ops.matmul(x[:, t], self.w_x.T) + ops.matmul(h, self.w_h.T)
            i, f, g, o = ops.chunk(gates + self.b_x + self.b_h, 4, axis=1)
            c = ops.sigmoid(f) * c + ops.sigmoid(i) * ops.tanh(g)
            h = ops.sigmoid(o) * ops.tanh(c)
            out.append(h)
        return ops.stack(out, axis=1)


class Net(nn.Cell):
    def __init__(self):
        super().__init__()
        self.table = Parameter(weights(15, 8))
        self.layer0 = Layer(8, 10)
        self.layer1 = Layer(10, 10)
        self.classifier = nn.Dense(10, 6)

    def construct(self, sentence, features):
        frozen = ops.stop_gradient(self.table[:1])
        table = ops.cat((frozen, self.table[1:]), 0)
        x = ops.gather(table, sentence, 0) + features
        y = self.layer1(self.layer0(x))
        y = ops.masked_fill(y, (sentence == 0).expand_dims(2), 0.0)
        return self.classifier(y)


def loss(outputs, targets):
    flat = outputs.reshape(-1, outputs.shape[-1])
    return ops.cross_entropy(flat, targets.reshape(-1).int(), ignore_index=0)


class Clipped(nn.Optimizer):
    def construct(self, gradients):
        total = sum((g * g).sum() for g in gradients)
        scale = ops.minimum(0.1 / (ops.sqrt(total) + 1e-6), 1.0)
        for p, g in zip(self.parameters, gradients):
            ops.assign(p, p - self.get_lr() * scale * g)
        return True


def optimizer(parameters):
    return Clipped(1.0, parameters)
