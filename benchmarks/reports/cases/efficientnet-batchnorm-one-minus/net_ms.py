from mindspore import nn

MOMENTUM = 0.99


class Net(nn.Cell):
    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, 2, pad_mode="pad", padding=1)
        self.bn0 = nn.BatchNorm2d(8, momentum=MOMENTUM, eps=1e-3)
        self.project = nn.Conv2d(8, 16, 1)
        self.bn1 = nn.BatchNorm2d(16, momentum=MOMENTUM, eps=1e-3)
        self.act, self.fc = nn.SiLU(), nn.Dense(16, 4)

    def construct(self, x):
        x = self.act(self.bn0(self.stem(x)))
        x = self.act(self.bn1(self.project(x)))
        return self.fc(x.mean((2, 3)))
