"""The TCN with padding at the left and shifted matrix products instead of conv1d."""

import numpy as np
from mindspore import Parameter, Tensor, nn, ops


class CausalConv(nn.Cell):
    def __init__(self, cin, cout, k, dilation):
        super().__init__()
        self.direction = Parameter(Tensor(np.random.randn(cout, cin, k).astype(np.float32)))
        self.length = Parameter(Tensor(np.ones((cout, 1, 1), np.float32)))
        self.offset = Parameter(Tensor(np.zeros(cout, np.float32)))
        self.k, self.dilation = k, dilation

    def construct(self, x):
        size = x.shape[-1]
        flat = self.direction.reshape(self.direction.shape[0], -1)
        norm = ops.norm(flat, dim=1).reshape(-1, 1, 1)
        w = self.length * (self.direction / norm)
        x = ops.pad(x, ((self.k - 1) * self.dilation, 0))
        y = self.offset.reshape(1, -1, 1)
        for j in range(self.k):
            part = x[:, :, j * self.dilation : j * self.dilation + size]
            y = y + ops.matmul(w[:, :, j], part)
        return y


class ResidualBlock(nn.Cell):
    def __init__(self, cin, cout, dilation):
        super().__init__()
        self.first = CausalConv(cin, cout, 3, dilation)
        self.second = CausalConv(cout, cout, 3, dilation)
        self.skip = nn.Conv1d(cin, cout, 1, has_bias=True) if cin != cout else nn.Identity()
        self.relu = nn.ReLU()

    def construct(self, x):
        y = self.relu(self.second(self.relu(self.first(x))))
        return self.relu(y + self.skip(x))


class Net(nn.Cell):
    def __init__(self):
        super().__init__()
        self.block0 = ResidualBlock(4, 8, 1)
        self.block1 = ResidualBlock(8, 8, 2)
        self.block2 = ResidualBlock(8, 10, 4)
        self.out = nn.Dense(10, 3)

    def construct(self, x):
        y = self.block2(self.block1(self.block0(x.permute(0, 2, 1))))
        return self.out(y[..., y.shape[-1] - 1])


def optimizer(parameters):
    warm = [0.5 / 3, 1.0 / 3, 0.5]
    cosine = [0.25 * (1 + float(np.cos(np.pi * i / 9))) for i in range(9)]
    return nn.SGD(parameters, warm + cosine)
