"""A temporal convolutional network: causal dilated convolutions with weight normalisation."""

import math

from mindspore import Parameter, nn, ops
from mindspore.common.initializer import HeUniform, One, Uniform, initializer


class WNConv1d(nn.Cell):
    """Conv1d with weight = g * v / |v|, one norm for each output channel."""

    def __init__(self, cin, cout, kernel, padding, dilation):
        super().__init__()
        self.v = Parameter(initializer(HeUniform(math.sqrt(5)), (cout, cin, kernel)), name="v")
        self.g = Parameter(initializer(One(), (cout, 1, 1)), name="g")
        self.bias = Parameter(initializer(Uniform(0.1), (cout,)), name="bias")
        self.padding, self.dilation = padding, dilation

    def construct(self, x):
        norm = ops.sqrt(ops.square(self.v).sum((1, 2), keepdims=True))
        w = self.g * self.v / norm
        return ops.conv1d(
            x, w, self.bias, pad_mode="pad", padding=self.padding, dilation=self.dilation
        )


class TemporalBlock(nn.Cell):
    def __init__(self, n_inputs, n_outputs, kernel_size, dilation):
        super().__init__()
        self.chomp = (kernel_size - 1) * dilation
        self.conv1 = WNConv1d(n_inputs, n_outputs, kernel_size, self.chomp, dilation)
        self.conv2 = WNConv1d(n_outputs, n_outputs, kernel_size, self.chomp, dilation)
        self.downsample = None
        if n_inputs != n_outputs:
            self.downsample = nn.Conv1d(n_inputs, n_outputs, 1, has_bias=True)

    def construct(self, x):
        out = ops.relu(self.conv1(x)[:, :, : -self.chomp])
        out = ops.relu(self.conv2(out)[:, :, : -self.chomp])
        res = x if self.downsample is None else self.downsample(x)
        return ops.relu(out + res)


class Net(nn.Cell):
    def __init__(self):
        super().__init__()
        channels = [8, 8, 10]
        blocks = []
        for i, c in enumerate(channels):
            blocks.append(TemporalBlock(4 if i == 0 else channels[i - 1], c, 3, 2**i))
        self.tcn = nn.SequentialCell(blocks)
        self.linear = nn.Dense(10, 3)

    def construct(self, x):
        y = self.tcn(x.swapaxes(1, 2))
        return self.linear(y[:, :, -1])


def rates(lr, warmup, total):
    """The learning rate of each step, as a list."""
    out = []
    for i in range(total):
        if i < warmup:
            out.append(lr * (i + 1) / warmup)
        else:
            out.append(lr * 0.5 * (1 + math.cos(math.pi * (i - warmup) / (total - warmup))))
    return out


def optimizer(parameters):
    return nn.SGD(parameters, learning_rate=rates(0.5, warmup=3, total=12))
