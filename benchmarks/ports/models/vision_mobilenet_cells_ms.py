"""The MobileNetV3-like net of MindSpore's own cells."""

from mindspore import nn


def conv_bn_act(cin, cout, k, stride=1, groups=1, act=True):
    cells = [
        nn.Conv2d(cin, cout, k, stride, "pad", (k - 1) // 2, 1, groups),
        nn.BatchNorm2d(cout, 0.001, 0.99),
    ]
    if act:
        cells.append(nn.HSwish())
    return nn.SequentialCell(cells)


class SqueezeExcite(nn.Cell):
    def __init__(self, channels, squeeze):
        super().__init__()
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.fc1 = nn.Conv2d(channels, squeeze, 1, has_bias=True)
        self.relu = nn.ReLU()
        self.fc2 = nn.Conv2d(squeeze, channels, 1, has_bias=True)
        self.gate = nn.HSigmoid()

    def construct(self, x):
        return x * self.gate(self.fc2(self.relu(self.fc1(self.pool(x)))))


class InvertedResidual(nn.Cell):
    def __init__(self, cin, hidden, cout, k, stride):
        super().__init__()
        self.identity = stride == 1 and cin == cout
        self.conv = nn.SequentialCell(
            conv_bn_act(cin, hidden, 1),
            conv_bn_act(hidden, hidden, k, stride, hidden),
            SqueezeExcite(hidden, 6),
            conv_bn_act(hidden, cout, 1, act=False),
        )

    def construct(self, x):
        out = self.conv(x)
        return x + out if self.identity else out


class Net(nn.Cell):
    def __init__(self):
        super().__init__()
        settings = [(8, 16, 8, 3, 1), (8, 20, 12, 5, 2), (12, 24, 12, 5, 1)]
        self.features = nn.SequentialCell(
            [conv_bn_act(3, 8, 3, 2)] + [InvertedResidual(*s) for s in settings]
        )
        self.classifier = nn.SequentialCell(nn.Dense(12, 20), nn.HSwish(), nn.Dense(20, 5))

    def construct(self, x):
        return self.classifier(self.features(x).mean((2, 3)))
