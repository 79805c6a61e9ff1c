"""The tied autoencoder with a loop over shared weights, ops.clip_by_global_norm and nn.SGD."""

import mindspore as ms
import numpy as np
from mindspore import Parameter, ParameterTuple, Tensor, mint, nn, ops

SIZES = (12, 8, 4)


class Net(nn.Cell):
    """Weights and biases in tuples."""

    def __init__(self):
        super().__init__()
        pairs = list(zip(SIZES, SIZES[1:]))
        self.up = ParameterTuple(
            [
                Parameter(Tensor(np.zeros(i), ms.float32), name=f"up{n}")
                for n, (i, o) in enumerate(pairs)
            ]
        )
        self.kernels = ParameterTuple(
            [
                Parameter(Tensor(np.random.randn(o, i) * 0.1, ms.float32), name=f"kernel{n}")
                for n, (i, o) in enumerate(pairs)
            ]
        )
        self.down = ParameterTuple(
            [
                Parameter(Tensor(np.zeros(o), ms.float32), name=f"down{n}")
                for n, (i, o) in enumerate(pairs)
            ]
        )

    def construct(self, x):
        for w, b in zip(self.kernels, self.down):
            x = mint.tanh(mint.nn.functional.linear(x, w, b))
        x = mint.tanh(mint.matmul(x, self.kernels[1]) + self.up[1])
        return mint.matmul(x, self.kernels[0]) + self.up[0]


class SGD(nn.SGD):
    """Clips before the update."""

    def construct(self, gradients):
        return super().construct(ops.clip_by_global_norm(gradients, 0.05))


def optimizer(parameters):
    """Momentum 0.9."""
    return SGD(parameters, learning_rate=0.1, momentum=0.9)
