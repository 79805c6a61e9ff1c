import mindspore as ms
import numpy as np
from mindspore import nn, ops


class GRU(nn.Cell):
    def __init__(self, inputs, hidden):
        super().__init__()
        rng, self.hidden = np.random.default_rng(0), hidden

        def draw(*shape):
            return ms.Parameter(rng.uniform(-0.3, 0.3, shape).astype("float32"))

        self.weight_ih_l0, self.weight_hh_l0 = draw(3 * hidden, inputs), draw(3 * hidden, hidden)
        self.bias_ih_l0, self.bias_hh_l0 = draw(3 * hidden), draw(3 * hidden)

    def construct(self, x):
        h, size = ops.zeros((x.shape[0], self.hidden)), self.hidden
        outputs = []
        for t in range(x.shape[1]):
            from_x = ops.matmul(x[:, t], self.weight_ih_l0.T) + self.bias_ih_l0
            gates = ops.matmul(h, self.weight_hh_l0[: 2 * size].T) + self.bias_hh_l0[: 2 * size]
            gates = ops.sigmoid(from_x[:, : 2 * size] + gates)
            r, z = gates[:, :size], gates[:, size:]
            from_h = ops.matmul(r * h, self.weight_hh_l0[2 * size :].T) + self.bias_hh_l0[2 * size :]
            n = ops.tanh(from_x[:, 2 * size :] + from_h)
            h = (1 - z) * n + z * h
            outputs.append(h)
        return ops.stack(outputs, 1), h


class Net(nn.Cell):
    def __init__(self, inputs=6, hidden=10, classes=4):
        super().__init__()
        self.rnn = GRU(inputs, hidden)
        self.fc = nn.Dense(hidden, classes)

    def construct(self, x):
        return self.fc(self.rnn(x)[0][:, -1])
