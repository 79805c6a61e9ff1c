from mindspore import nn, ops


class Net(nn.Cell):
    def __init__(self, channels=8):
        super().__init__()
        self.stem = nn.Conv2d(3, channels, 3, pad_mode="pad", padding=1, has_bias=True)
        self.pool = nn.AvgPool2d(3, 2, pad_mode="pad", padding=1, count_include_pad=False)
        self.mix = nn.Conv2d(2 * channels, channels, 1, has_bias=True)
        self.reduce = nn.Conv2d(channels, channels, 3, 2, pad_mode="pad", padding=1, has_bias=True)
        self.head = nn.Dense(channels, 6)

    def construct(self, x):
        x = ops.relu(self.stem(x))
        x = ops.cat([self.pool(x), self.reduce(x)], 1)
        return self.head(ops.relu(self.mix(x)).mean((2, 3)))
