from mindspore import nn, ops


class PreActBlock(nn.Cell):
    def __init__(self, inputs, width, stride):
        super().__init__()
        pad = dict(pad_mode="pad", padding=1)
        self.bn1, self.conv1 = nn.BatchNorm2d(inputs), nn.Conv2d(inputs, width, 3, stride, **pad)
        self.bn2, self.conv2 = nn.BatchNorm2d(width), nn.Conv2d(width, width, 3, 1, **pad)
        self.shortcut = nn.Conv2d(inputs, width, 1, stride, pad_mode="valid")

    def construct(self, x):
        y = ops.relu(self.bn1(x))
        shortcut = self.shortcut(y)
        y = self.conv1(y)
        y = self.conv2(ops.relu(self.bn2(y)))
        return y + shortcut


class Net(nn.Cell):
    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, 1, pad_mode="pad", padding=1)
        self.block1, self.block2 = PreActBlock(8, 8, 1), PreActBlock(8, 16, 2)
        self.linear = nn.Dense(16, 10)

    def construct(self, x):
        return self.linear(self.block2(self.block1(self.stem(x))).mean((2, 3)))
