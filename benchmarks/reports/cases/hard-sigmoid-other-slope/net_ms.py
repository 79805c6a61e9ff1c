from mindspore import nn, ops


class HardSigmoid(nn.Cell):
    def __init__(self, bias=1.0, divisor=2.0):
        super().__init__()
        self.bias, self.divisor = bias, divisor

    def construct(self, x):
        return ops.clamp((x + self.bias) / self.divisor, 0.0, 1.0)


class SqueezeExcite(nn.Cell):
    def __init__(self, channels):
        super().__init__()
        self.reduce = nn.Conv2d(channels, channels // 4, 1, has_bias=True)
        self.expand = nn.Conv2d(channels // 4, channels, 1, has_bias=True)
        self.gate = HardSigmoid()

    def construct(self, x):
        y = ops.relu(self.reduce(x.mean((2, 3), keep_dims=True)))
        return x * self.gate(self.expand(y))


class Net(nn.Cell):
    def __init__(self, width=16):
        super().__init__()
        self.stem = nn.Conv2d(3, width, 3, 2, pad_mode="pad", padding=1)
        self.bn = nn.BatchNorm2d(width)
        self.act, self.se = nn.HSwish(), SqueezeExcite(width)
        self.fc = nn.Dense(width, 6)

    def construct(self, x):
        return self.fc(self.se(self.act(self.bn(self.stem(x)))).mean((2, 3)))
