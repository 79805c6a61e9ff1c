from mindspore import nn, ops


class Net(nn.Cell):
    def __init__(self, channels=12):
        super().__init__()
        norm = dict(eps=1e-3, momentum=0.01)
        self.expand = nn.Conv2d(4, channels, 1)
        self.bn1 = nn.BatchNorm2d(channels, **norm)
        self.depth = nn.Conv2d(channels, channels, 3, pad_mode="pad", padding=1, group=channels)
        self.bn2 = nn.BatchNorm2d(channels, **norm)
        self.head = nn.Dense(channels, 5)

    def construct(self, x):
        x = ops.gelu(self.bn1(self.expand(x)))
        x = ops.gelu(self.bn2(self.depth(x)))
        return self.head(x.mean((2, 3)))
