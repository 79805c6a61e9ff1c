from mindspore import nn, ops


class Net(nn.Cell):
    def __init__(self, drop=0.2):
        super().__init__()
        self.conv = nn.Conv2d(3, 12, 3, 2, pad_mode="pad", padding=1)
        self.bn, self.dropout = nn.BatchNorm2d(12), nn.Dropout(p=1 - drop)
        self.fc = nn.Dense(12, 7)

    def construct(self, x):
        x = ops.relu(self.bn(self.conv(x))).mean((2, 3))
        return self.fc(self.dropout(x))
