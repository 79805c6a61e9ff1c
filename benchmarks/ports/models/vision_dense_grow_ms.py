"""The DenseNet with a growing tensor and one list of cells."""

from mindspore import nn, ops


class PreActConv(nn.Cell):
    def __init__(self, cin, cout, kernel):
        super().__init__()
        self.bn = nn.BatchNorm2d(cin)
        self.weight = nn.Conv2d(cin, cout, kernel)

    def construct(self, x):
        return self.weight(ops.relu(self.bn(x)))


class Net(nn.Cell):
    def __init__(self):
        super().__init__()
        self.pad = nn.ReflectionPad2d(1)
        self.first = nn.Conv2d(3, 6, 3, pad_mode="pad", padding=0)
        units = []
        for cin in (6, 12, 18):
            units += [PreActConv(cin, 12, 1), PreActConv(12, 6, 3)]
        units.append(PreActConv(24, 12, 1))
        for cin in (12, 18):
            units += [PreActConv(cin, 12, 1), PreActConv(12, 6, 3)]
        self.units = nn.CellList(units)
        self.last = nn.BatchNorm2d(24)
        self.fc = nn.Dense(24, 5)

    def grow(self, x, start, count):
        for i in range(start, start + 2 * count, 2):
            x = ops.concat((x, self.units[i + 1](self.units[i](x))), axis=1)
        return x

    def construct(self, x):
        x = self.grow(self.first(self.pad(x)), 0, 3)
        x = ops.avg_pool2d(self.units[6](x), 2, 2)
        x = self.grow(x, 7, 2)
        return self.fc(ops.relu(self.last(x)).mean((2, 3)))
