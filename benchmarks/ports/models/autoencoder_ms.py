"""An autoencoder whose decoder uses the encoder's weights transposed."""

import mindspore as ms
from mindspore import Parameter, nn, ops


class Net(nn.Cell):
    """Twelve to eight to four and back."""

    def __init__(self):
        super().__init__()
        self.enc1 = nn.Dense(12, 8)
        self.enc2 = nn.Dense(8, 4)
        self.dec2_bias = Parameter(ops.zeros(8, ms.float32), name="dec2_bias")
        self.dec1_bias = Parameter(ops.zeros(12, ms.float32), name="dec1_bias")

    def construct(self, x):
        h = ops.tanh(self.enc1(x))
        code = ops.tanh(self.enc2(h))
        h = ops.tanh(ops.matmul(code, self.enc2.weight) + self.dec2_bias)
        return ops.matmul(h, self.enc1.weight) + self.dec1_bias


class ClippedMomentum(nn.Optimizer):
    """Clips the norm of all gradients together, then momentum."""

    def __init__(self, params, learning_rate, momentum, max_norm):
        super().__init__(learning_rate, params)
        self.lr = learning_rate
        self.momentum = momentum
        self.max_norm = max_norm
        self.buffers = self.parameters.clone(prefix="momentum", init="zeros")

    def construct(self, grads):
        total = ops.sqrt(sum(ops.square(g).sum() for g in grads))
        factor = ops.minimum(self.max_norm / (total + 1e-6), 1.0)
        grads = [g * factor for g in grads]
        for p, g, v in zip(self.parameters, grads, self.buffers):
            ops.assign(v, self.momentum * v + g)
            ops.assign_sub(p, self.lr * v)
        return True


def optimizer(parameters):
    """Momentum 0.9."""
    return ClippedMomentum(parameters, learning_rate=0.1, momentum=0.9, max_norm=0.05)
